"""Odd text, numbers, depths and sizes through the doors of a real collector: kept, marked, and no neighbour pays."""

from __future__ import annotations

import json
import os
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from support.daemon import Daemon
from support.otlp_build import any_value, field, logs, nested, span, traces
from support.otlp_send import send
from support.raw_client import RawClient
from support.waiting import until

MIB = 1 << 20
ODD_ENDS = "a\u2028b\u2029c\x85d\x0be\x0cf\rg\x00h"


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0") as running:
        yield running


def strict_lines(path: Path) -> list[dict]:
    """The records of a trace, every line of it strict JSON in UTF-8."""

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    data = path.read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line.decode("utf-8"), parse_constant=refuse) for line in data.split(b"\n")[:-1]]


def rss_kb(daemon: Daemon) -> int:
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


ODD_LINES = [
    (rb'{"n":1,"type":"log","payload":{"a":"\ud83e"}}', {"a": "\ufffd"}),
    (rb'{"n":2,"type":"log","payload":{"a":"\udd16"}}', {"a": "\ufffd"}),
    (rb'{"n":3,"type":"log","payload":{"\ud83e":["\ud83e","\udd16"]}}', {"\ufffd": ["\ufffd", "\ufffd"]}),
    (
        b'{"n":4,"type":"log","payload":{"a":[NaN,Infinity,-Infinity,1e999]}}',
        {"a": ["NaN", "Infinity", "-Infinity", "Infinity"]},
    ),
    (b'{"n":5,"type":"log","payload":{"a":%d}}' % 2**80, {"a": 2**80}),
    (b'{"n":6,"type":"log","payload":{"a":%b}}' % (b"7" * 5000), {"a": "7" * 5000}),
    (rb'{"n":7,"type":"log","name":"n\u0000","payload":{"k\u0000":"\u0000"}}', {"k\x00": "\x00"}),
    (b'{"n":8,"type":"log","payload":{"text":"\xff\xfe"}}', {"text": "\ufffd\ufffd"}),
    (b'{"n":9,"type":"log","payload":{"a":1,"a":2}}', {"a": 2}),
    (b'\xef\xbb\xbf{"n":10,"type":"log","payload":{"a":"bom"}}\r', {"a": "bom"}),
    (
        b'{"n":11,"type":"log","payload":{"a":%b}}' % json.dumps(ODD_ENDS, ensure_ascii=False).encode(),
        {"a": ODD_ENDS},
    ),
]


def test_odd_lines_are_kept_and_their_neighbours_too(daemon):
    with RawClient(daemon.socket) as client:
        client.hello("a")
        client.send(b"", b"  \t", b"\r")
        for line, _ in ODD_LINES:
            client.send(line, b"")
        client.acked(len(ODD_LINES))
        client.send(b'{"n":12,"type":"run.end","status":"ok"}')
        client.acked(12)
    until(lambda: daemon.rows()[0]["status"] == "ok", "the end")
    records = strict_lines(daemon.run_dir() / "trace.jsonl")
    found = [r["payload"] for r in records if r["type"] == "log"]
    assert found == [payload for _, payload in ODD_LINES]
    assert records[7]["name"] == "n\x00"
    assert [bool(r["src"].get("repairs")) for r in records if r["type"] == "log"] == [
        n in (1, 2, 3, 8, 9) for n in range(1, 12)
    ]
    shown = (daemon.run_dir() / "agent.logs").read_bytes().decode()
    assert "\x00" not in shown
    assert len([line for line in shown.split("\n") if line.startswith("#")]) == len(records)
    assert daemon.cli("verify").returncode == 0


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, MIB, 50 * MIB])
def test_a_line_of_any_size_up_to_the_limit_is_kept(daemon, size):
    head, tail = b'{"n":1,"type":"log","payload":{"message":"', b'"}}'
    text = b"x" * (size - len(head) - len(tail))
    with RawClient(daemon.socket) as client:
        client.hello("a")
        client.send(head + text + tail, b'{"n":2,"type":"log","payload":{"message":"next"}}')
        client.acked(2)
    record, following = daemon.trace()[1:]
    blob = daemon.run_dir() / record["payload"]["message"]["ref"]
    assert blob.read_bytes() == text
    assert following["payload"]["message"] == "next"


def test_a_line_over_the_limit_is_skipped_and_the_next_is_read(tmp_path):
    with Daemon(tmp_path, max_line_bytes="65536") as daemon, RawClient(daemon.socket) as client:
        client.hello("a")
        for size in (65_535, 65_536, 65_537):
            line = b'{"type":"log","payload":{"message":"%b"}}'
            client.send(line % (b"x" * (size - len(line) + 2)))
        client.send(b'{"n":1,"type":"log"}')
        assert client.expect("error")["code"] == "line_too_long"
        client.acked(1)
        logged = [r for r in daemon.trace() if r["type"] == "log"]
        # A refusal without a number is told at the end of its read, perhaps after the line behind it.
        assert sorted(str(r["payload"].get("refused")) for r in logged) == ["None"] * 3 + ["line_too_long"]


def test_a_last_line_without_newline_is_no_event(daemon):
    with RawClient(daemon.socket) as client:
        client.hello("a", session_id="s")
        client.sock.sendall(b'{"n":1,"type":"log"}\n{"n":2,"type":"log"}')
        client.acked(1)
    with RawClient(daemon.socket) as client:
        assert client.hello("a", session_id="s")["acked"] == 1


DEPTH = 100_000


def test_a_hostile_depth_over_the_socket_is_kept_as_text(daemon):
    before = rss_kb(daemon)
    with RawClient(daemon.socket) as client, RawClient(daemon.socket) as other:
        client.hello("a")
        for n in range(1, 11):
            client.send(b'{"n":%d,"type":"log","payload":{"a":%b}}' % (n, b"[" * DEPTH + b"]" * DEPTH))
        client.send(b"[" * DEPTH, b'{"n":11,"type":"log","payload":{"a":%b' % (b'{"a":' * DEPTH))
        other.settle()
        client.acked(11)
    records = daemon.trace()
    assert [r["payload"].get("refused") for r in records[1:]] == [None] * 10 + ["bad_json"] * 2
    value = records[1]["payload"]["a"]
    while not isinstance(value, dict):
        (value,) = value
    assert value["bytes"] == 2 * (DEPTH - 199)
    assert records[1]["src"]["repairs"] == ["values nested deeper than 200 levels, kept as JSON text: 1"]
    assert rss_kb(daemon) - before < 40 * 1024
    assert daemon.cli("verify").returncode == 0


def bad_everywhere() -> bytes:
    """A request whose every string holds bytes that are no UTF-8, and a clean span."""
    words = {f"BAD{n:02}": f"B\xffD{n:02}" for n in range(12)}
    dirty = span(
        2,
        1,
        name="BAD00",
        attributes={
            "gen_ai.operation.name": "execute_tool",
            "BAD01": "BAD02",
            "deep": [{"BAD03": ["BAD04"]}],
        },
        error="BAD05",
        exception=("BAD06", "BAD07"),
        trace_state="BAD08",
    )
    clean = span(1, name="clean", attributes={"agent.name": "clean", "gen_ai.operation.name": "invoke_agent"})
    body = traces(dirty, clean, resource={"BAD09": "BAD10"}, scope="BAD11")
    for mark, said in words.items():
        body = body.replace(mark.encode(), said.encode("latin-1"))
    return body


def test_no_string_of_an_otlp_request_costs_more_than_itself(daemon):
    assert send(daemon.otlp, "traces", bad_everywhere()) == b""
    records = until(lambda: _all_told(daemon), "both spans in the run")
    text = json.dumps(records, ensure_ascii=False)
    assert [r["name"] for r in records if r["type"] == "agent.start"] == ["clean"]
    assert [n for n in range(12) if f"B\ufffdD{n:02}" not in text] == []
    (closing,) = [r for r in records if r["type"] == "tool.error"]
    assert closing["payload"]["otel"]["repairs"] == [
        "strings of invalid UTF-8, repaired: 9",
        "in its scope: strings of invalid UTF-8, repaired: 1",
        "in its resource: strings of invalid UTF-8, repaired: 2",
    ]


def _all_told(daemon: Daemon) -> list[dict] | None:
    records = daemon.trace() if (daemon.root / "runs").exists() and daemon.run_ids() else []
    return records if any(r["type"] == "agent.end" for r in records) else None


def test_a_hostile_depth_over_otlp_is_kept_as_text(daemon):
    deep = LogRecord(severity_text="INFO").SerializeToString() + field(5, nested("[", DEPTH))
    record = LogRecord(body=any_value("a plain one"))
    body = field(1, field(2, field(2, deep))) + logs(record)
    before = rss_kb(daemon)
    assert send(daemon.otlp, "logs", body) == b""
    until(
        lambda: (
            (daemon.root / "runs").exists()
            and len([r for run in daemon.run_ids() for r in daemon.trace(run) if r["type"] == "log"]) == 2
        ),
        "both records",
    )
    kept = [r for run in daemon.run_ids() for r in daemon.trace(run) if r["type"] == "log"]
    notes = [r["payload"].get("otel", {}).get("repairs") for r in kept]
    assert sorted(notes, key=bool) == [None, ["values nested too deeply for protobuf, kept as JSON text: 1"]]
    assert rss_kb(daemon) - before < 40 * 1024


def test_a_request_that_is_none_is_an_invalid_argument(daemon):
    for body in (b"\xff" * 10, os.urandom(64) + b"\xff"):
        with pytest.raises(grpc.RpcError) as caught:
            send(daemon.otlp, "traces", body)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
