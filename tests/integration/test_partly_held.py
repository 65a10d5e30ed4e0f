"""A request that is partly in a run that has ended, and still in the journal when the collector is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from agentrund.formats import intake_record
from agentrund.formats.intake_record import MAGIC, IntakeRecord
from support.daemon import Daemon
from support.otlp_build import any_value, hex_id, key_values, logs, span, traces
from support.otlp_captures import captures_folder, load
from support.otlp_send import send
from support.raw_client import RawClient
from support.strace import straced
from support.waiting import until

SENDER = Path(__file__).parent.parent / "support" / "otlp_send.py"
ELSEWHERE = bytes.fromhex("22" * 16)
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}
MINE = {"service.name": "demo", "service.instance.id": "demo"}


@pytest.fixture(params=["interval", "always"])
def daemon(tmp_path, request):
    settings = {"sync": request.param, "otlp_grpc": "127.0.0.1:0", "idle_timeout": "300ms"}
    with Daemon(tmp_path, **settings) as running:
        yield running


def record(text: str, trace: bytes, number: int, **fields) -> LogRecord:
    return LogRecord(
        time_unix_nano=1_790_000_000_500_000_000,
        body=any_value(text),
        trace_id=trace,
        span_id=bytes.fromhex(hex_id(number)),
        **fields,
    )


def content(trace: bytes, number: int) -> LogRecord:
    """What only tells the content of a model call waits a minute for its span."""
    attributes = key_values({"event.name": "gen_ai.user.message"})
    return record("hello", trace, number, attributes=attributes)


def settled(daemon: Daemon) -> None:
    """Everything in the journal is worked off."""

    def waiting() -> int:
        with RawClient(daemon.socket) as client:
            client.send({"op": "status"})
            return client.expect("status")["otlp"]["waiting"]

    until(lambda: waiting() == 0, "the journal")


def statuses(daemon: Daemon) -> list[str]:
    return [row["status"] for row in daemon.rows()]


def held(daemon: Daemon) -> list[IntakeRecord]:
    """The requests of the journal that bear no mark."""
    found: dict[int, IntakeRecord] = {}
    for path in sorted((daemon.root / ".agentrund" / "intake").iterdir()):
        for placed in intake_record.read(memoryview(path.read_bytes()), str(path)):
            if isinstance(placed.record, IntakeRecord):
                found[placed.record.rq] = placed.record
            else:
                found.pop(placed.record.rq, None)
    return list(found.values())


def test_the_part_of_a_run_that_has_ended_is_not_told_again(daemon):
    mine = span(1, attributes=AGENT)
    send(daemon.otlp, "traces", traces(mine, resource=MINE))
    send(daemon.otlp, "logs", logs(record("a part", mine.trace_id, 1), content(ELSEWHERE, 7), resource=MINE))
    until(lambda: statuses(daemon) == ["ok"], "the end")
    daemon.kill()
    [before] = daemon.run_ids()
    trace = daemon.trace()
    assert [r["payload"].get("message") for r in trace].count("a part") == 1
    assert [len(list(r.body.split(b"a part"))) for r in held(daemon)] == [2], "the request is still held"
    daemon.start()
    other, call = span(8, attributes=AGENT), span(7, 8, attributes={"gen_ai.operation.name": "chat"})
    other.trace_id = call.trace_id = ELSEWHERE
    send(daemon.otlp, "traces", traces(other, call, resource=MINE))
    settled(daemon)
    [after] = set(daemon.run_ids()) - {before}
    assert "hello" in json.dumps(daemon.trace(after))
    assert daemon.trace(before) == trace
    assert daemon.cli("verify").returncode == 0


@pytest.mark.parametrize("signal", ["traces", "logs"])
def test_a_run_that_ended_before_its_request_was_kept_is_not_told_again(tmp_path, signal):
    settings = {"sync": "always", "otlp_grpc": "127.0.0.1:0", "idle_timeout": "300ms"}
    body = {
        "traces": traces(span(1, attributes=AGENT), span(2, 1), resource=MINE),
        "logs": logs(record("a part", b"", 0), resource=MINE),
    }[signal]

    def ask() -> None:
        with suppress(grpc.RpcError):
            send(daemon.otlp, signal, body)

    with Daemon(tmp_path, **settings) as daemon:
        asking = threading.Thread(target=ask)
        with straced(daemon, "-e", "inject=fdatasync:delay_enter=120000000"):
            asking.start()
            until(lambda: daemon.rows() and "running" not in statuses(daemon), "the end")
            daemon.process.kill()  # it is gone when strace lets go of it
        daemon.kill()
        asking.join()
        trace = daemon.trace()
        assert len(held(daemon)) == 1
        daemon.start()
        settled(daemon)
        send(daemon.otlp, signal, body)
        settled(daemon)
        assert daemon.trace() == trace
        assert daemon.cli("verify").returncode == 0


def test_a_journal_that_lost_all_its_marks_adds_nothing(daemon):
    name = "otel-openai-v2-2.4b0-default"
    load(name)
    folder = captures_folder() / name
    manifest = json.loads((folder / "manifest.json").read_text())
    requests = [f"{request['signal']}={folder / request['file']}" for request in manifest["requests"]]
    subprocess.run([sys.executable, str(SENDER), daemon.otlp, *requests], check=True, timeout=60)
    until(lambda: daemon.rows() and "running" not in statuses(daemon), "the end")
    settled(daemon)
    daemon.kill()
    traces_before = {run_id: daemon.trace(run_id) for run_id in daemon.run_ids()}
    assert unmark(daemon) >= 1
    daemon.start()
    settled(daemon)
    assert {run_id: daemon.trace(run_id) for run_id in daemon.run_ids()} == traces_before
    assert daemon.cli("verify").returncode == 0


def unmark(daemon: Daemon) -> int:
    """Write the journal anew without its marks; returns how many requests it has."""
    count = 0
    for path in (daemon.root / ".agentrund" / "intake").iterdir():
        kept = [p.record for p in intake_record.read(memoryview(path.read_bytes()), str(path))]
        requests = [r for r in kept if isinstance(r, IntakeRecord)]
        path.write_bytes(MAGIC + b"".join(part for r in requests for part in intake_record.encode_request(r)))
        count += len(requests)
    return count
