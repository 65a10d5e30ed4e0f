"""Metrics of the real SDK, in real processes: whole, in their run, and each point once."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from agentrund.formats import intake_record
from agentrund.model.otlp import IntakeRecord, Signal
from support.daemon import START_S, Daemon
from support.otlp_build import counter, logs, metrics, span, traces
from support.otlp_doors import send
from support.ports import free_port
from support.strace import straced
from support.waiting import until

PROGRAM = Path(__file__).parent.parent / "support" / "otel_measured.py"


@pytest.fixture
def daemon(tmp_path):
    settings = {door: f"127.0.0.1:{free_port()}" for door in ("otlp_grpc", "http")}
    with Daemon(tmp_path, **settings) as running:
        yield running


def start(daemon: Daemon, door: str, mode: str) -> subprocess.Popen[str]:
    address = daemon.http if door == "http" else daemon.otlp
    command = [sys.executable, str(PROGRAM), address, door, mode]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def lines(path: Path) -> list[dict]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def stray(daemon: Daemon) -> list[dict]:
    found = sorted((daemon.root / ".agentrund" / "metrics").glob("*.jsonl"))
    return [line for path in found for line in lines(path)]


def of_run(daemon: Daemon) -> list[dict]:
    """Of the only run, once it is there."""
    return [line for path in daemon.root.glob("runs/*/metrics.jsonl") for line in lines(path)]


@pytest.mark.parametrize("door", ["grpc", "http"])
def test_what_a_program_measures_is_in_its_run_and_whole(daemon, door):
    with start(daemon, door, "story") as program:
        assert program.wait(60) == 0
        pid = program.pid
    until(lambda: daemon.rows() and daemon.rows()[0]["status"] == "ok", "the end of the run")
    found = {line["name"]: line for line in until(lambda: of_run(daemon), "its metrics")}
    assert sorted(found) == ["calls", "durations", "waits"]
    calls = found["calls"]
    assert (calls["kind"], calls["temporality"], calls["monotonic"], calls["value"]) == (
        "sum",
        "delta",
        True,
        3,
    )
    assert (calls["unit"], calls["description"], calls["attributes"]) == (
        "{call}",
        "calls made",
        {"model": "m"},
    )
    assert (calls["service"], calls["scope"]) == ("measured", "test")
    assert [len([1 for line in of_run(daemon) if "resource" in line])] == [1]
    (start_,) = [r for r in daemon.trace() if r["type"] == "run.start"]
    assert calls["src"]["id"] == start_["payload"]["source"]
    assert start_["payload"]["pid"] == pid
    durations = found["durations"]
    assert (durations["kind"], durations["temporality"]) == ("histogram", "cumulative")
    assert (durations["count"], durations["sum"]) == (3, 9007.5)
    assert (durations["min"], durations["max"]) == (0.5, 9000.0)
    assert len(durations["bucket_counts"]) == len(durations["bounds"]) + 1
    assert sum(durations["bucket_counts"]) == 3
    waits = found["waits"]
    assert waits["kind"] == "exponential_histogram"
    assert waits["zero_count"] + sum(waits["positive"]["bucket_counts"]) == 3
    assert stray(daemon) == []
    assert daemon.cli("verify").stdout == ""


@pytest.mark.parametrize("door", ["grpc", "http"])
def test_kills_of_the_collector_cost_no_acknowledged_point_and_repeat_none(daemon, door):
    acknowledged = []
    with start(daemon, door, "stream") as program:
        for _ in range(3):
            acknowledged += [int(program.stdout.readline()) for _ in range(30)]
            daemon.kill()
            daemon.start()
        acknowledged += [int(program.stdout.readline()) for _ in range(5)]
        program.stdin.close()
        acknowledged += [int(line) for line in program.stdout]
        assert program.wait(60) == 0
    wanted = set(acknowledged)
    assert len(wanted) == len(acknowledged)

    def all_there():
        return wanted <= {line["attributes"]["n"] for line in of_run(daemon)}

    until(all_there, "every acknowledged point")
    found = [line["attributes"]["n"] for line in of_run(daemon)]
    assert sorted(found) == sorted(set(found))
    assert stray(daemon) == []
    assert daemon.cli("verify").stdout == ""


def forget_done(daemon: Daemon) -> int:
    """The journal as a kill leaves it between writing metrics and saying so; returns how many requests that is."""
    of_metrics = set()
    for path in (daemon.root / ".agentrund" / "intake").glob("*.intake"):
        kept = [intake_record.MAGIC]
        for placed in intake_record.read(memoryview(path.read_bytes()), str(path)):
            record = placed.record
            if isinstance(record, IntakeRecord):
                kept += intake_record.encode_request(record)
                of_metrics |= {record.rq} if record.signal is Signal.METRICS else set()
            elif record.rq not in of_metrics:
                kept.append(intake_record.encode_done(record.rq))
        path.write_bytes(b"".join(kept))
    return len(of_metrics)


def agent(daemon: Daemon, *, ended: bool = False) -> None:
    """A run of this process: it goes on, or has ended by its sender's own word."""
    root = span(1, name="agent", start=time.time(), attributes={"gen_ai.operation.name": "invoke_agent"})
    assert send(daemon, "grpc", Signal.TRACES, traces(root)).kind == "ok"
    until(lambda: any(daemon.root.glob("runs/*/trace.jsonl")), "the run")
    if ended:
        end = LogRecord(event_name="session.end", trace_id=root.trace_id, span_id=root.span_id)
        assert send(daemon, "grpc", Signal.LOGS, logs(end)).kind == "ok"
        until(lambda: daemon.rows()[0]["status"] == "ok", "the end of the run")


@pytest.mark.parametrize("ended", [False, True])
def test_a_request_that_was_not_marked_as_done_is_not_told_twice(daemon, ended):
    agent(daemon, ended=ended)
    assert send(daemon, "json", Signal.METRICS, metrics(counter("calls", *range(100)))).kind == "ok"
    until(lambda: len(of_run(daemon)) == 100, "its metrics")
    daemon.kill()
    path = daemon.run_dir() / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-150])
    assert forget_done(daemon) == 1
    daemon.start()
    assert send(daemon, "grpc", Signal.METRICS, metrics(counter("last"))).kind == "ok"
    until(lambda: of_run(daemon)[-1]["name"] == "last", "a point that comes after it")
    assert [line["value"] for line in of_run(daemon) if line["name"] == "calls"] == list(range(100))
    assert stray(daemon) == []
    assert daemon.cli("verify").stdout == ""


def test_metrics_of_a_process_without_a_run_are_kept_and_told_once(daemon):
    sender = [sys.executable, "-c", SEND, daemon.http]
    body = metrics(counter("calls", 1, 2), resource={"service.name": "alone"})
    subprocess.run(sender, input=body, check=True, timeout=60)
    found = until(lambda: stray(daemon), "its metrics")
    assert [(line["run_id"], line["service"], line["value"]) for line in found] == [
        (None, "alone", 1),
        (None, "alone", 2),
    ]
    assert daemon.rows() == []
    daemon.kill()
    assert forget_done(daemon) == 1
    daemon.start()
    subprocess.run([*sender[:-1], daemon.http], input=metrics(counter("last", 3)), check=True, timeout=60)
    until(lambda: stray(daemon)[-1]["name"] == "last", "a point that comes after it")
    assert [line["value"] for line in stray(daemon)] == [1, 2, 3]
    assert daemon.cli("verify").stdout == ""


SEND = """
import sys, http.client
connection = http.client.HTTPConnection(sys.argv[1])
connection.request("POST", "/v1/metrics", sys.stdin.buffer.read(), {"content-type": "application/x-protobuf"})
assert connection.getresponse().status == 200
"""


def test_something_in_the_place_of_metrics_jsonl_holds_nobody_up(daemon, tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    agent(daemon)
    (daemon.run_dir() / "metrics.jsonl").symlink_to(outside)
    send(daemon, "grpc", Signal.METRICS, metrics(counter()))
    (line,) = until(lambda: stray(daemon), "its metrics, elsewhere")
    assert line["name"] == "calls"
    assert outside.read_bytes() == b""
    status = json.loads(daemon.cli("status", "--json").stdout)
    assert status["otlp"]["waiting"] == 0


def sent_in_the_end(daemon: Daemon, body: bytes) -> None:
    """A request of a sender that does not give up; a collector that was killed meanwhile is started again."""
    while True:
        with suppress(OSError):
            assert send(daemon, "protobuf", Signal.METRICS, body).kind == "ok"
            return
        daemon.process.wait(START_S)
        start_again(daemon)


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["interval", "always"])
@pytest.mark.parametrize("call", ["write", "writev"])
def test_a_kill_at_any_write_repeats_no_point(tmp_path, sync, call):
    for n in itertools.count(1):
        base = tmp_path / str(n)
        base.mkdir()
        doors = {door: f"127.0.0.1:{free_port()}" for door in ("otlp_grpc", "http")}
        with Daemon(base, sync=sync, **doors) as daemon:
            agent(daemon)
            first = daemon.process.pid
            with straced(daemon, "-e", f"inject={call}:signal=KILL:when={n}"):
                for k in range(3):
                    sent_in_the_end(daemon, metrics(counter("calls", *range(k * 100, k * 100 + 60))))
                    until(lambda k=k: len(of_run(daemon)) >= 60 * (k + 1) or gone(daemon), "its lines")
            if gone(daemon):
                start_again(daemon)
            sent_in_the_end(daemon, metrics(counter("last", 1)))
            until(lambda: of_run(daemon) and of_run(daemon)[-1]["name"] == "last", "a point that comes after")
            values = [line["value"] for line in of_run(daemon)[:-1]]
            assert sorted(values) == [k * 100 + i for k in range(3) for i in range(60)]
            assert stray(daemon) == []
            assert daemon.cli("verify").stdout == ""
            if daemon.process.pid == first:
                break
    assert n > 3


def gone(daemon: Daemon) -> bool:
    return daemon.process.poll() is not None


def start_again(daemon: Daemon) -> None:
    """Start a collector that was killed inside a call."""
    daemon.kill()  # which also closes what it left open here
    daemon.start()
