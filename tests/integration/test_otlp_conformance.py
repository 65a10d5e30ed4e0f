"""The OTLP specification's demands on a receiver, each asked of all three ways in (OTLP 1.11.0)."""

from __future__ import annotations

import http.client
import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from agentrund.model.otlp import Signal
from support import otlp_build as build
from support.daemon import Daemon
from support.otlp_doors import BAD, DOORS, OK, STRANGER, TOO_LARGE, TYPES, UNKNOWN, post, send
from support.waiting import until

LIMIT = 1 << 20
TOKEN = "a-token-that-nobody-guesses"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    base = tmp_path_factory.mktemp("conformance")
    with Daemon(base, otlp_grpc="127.0.0.1:0", http="127.0.0.1:0", max_request_bytes=str(LIMIT)) as running:
        yield running


@pytest.fixture(params=DOORS)
def door(request):
    return request.param


def chat(n: int = 1, *, note: str = "", **fields) -> bytes:
    """A request of one model call."""
    one = build.span(n, attributes={"gen_ai.operation.name": "chat", "note": note}, **fields)
    return build.traces(one, resource={"service.name": "conforming"})


def of_trace(daemon: Daemon, text: str) -> list[dict]:
    """The records of all runs that hold a text, once there are some."""

    def found():
        return [
            record
            for run_id in daemon.run_ids()
            for record in daemon.trace(run_id)
            if text in json.dumps(record["payload"])
        ]

    return until(found, text)


@pytest.mark.parametrize("coding", [None, "gzip", "deflate", "zstd"])
def test_every_signal_in_every_coding_is_taken(daemon, door, coding):
    if (door, coding) == ("grpc", "zstd"):
        pytest.skip("gRPC knows no zstd")
    text = f"{door} {coding}"
    record = LogRecord(time_unix_nano=1_790_000_000_000_000_000, body=build.any_value(f"log {text}"))
    metrics = ExportMetricsServiceRequest()
    metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    bodies = {
        Signal.TRACES: chat(abs(hash(text)) % 2**60 + 1, note=f"span {text}"),
        Signal.LOGS: build.logs(record, resource={"service.name": "conforming"}),
        Signal.METRICS: metrics.SerializeToString(),
    }
    for signal, body in bodies.items():
        answer = send(daemon, door, signal, body, coding=coding)
        assert (answer.kind, answer.rejected, answer.message) == (OK, 0, "")
    assert of_trace(daemon, f"span {text}")
    assert of_trace(daemon, f"log {text}")


@pytest.mark.parametrize("coding", [None, "gzip"])
def test_the_limit_holds_before_and_after_decompression(daemon, door, coding):
    answer = send(daemon, door, Signal.TRACES, chat(note="x" * 2 * LIMIT), coding=coding)
    assert (answer.kind, answer.retry) == (TOO_LARGE, None)
    assert send(daemon, door, Signal.TRACES, chat(2, note="x" * (LIMIT - 2000)), coding=coding).kind == OK


def test_requests_with_nothing_in_them_succeed(daemon, door):
    envelope = ExportMetricsServiceRequest()
    envelope.resource_metrics.add().scope_metrics.add()
    for body in (b"", build.traces(), b"\x0a\x00"):
        assert send(daemon, door, Signal.TRACES, body).kind == OK
    assert send(daemon, door, Signal.METRICS, envelope.SerializeToString()).kind == OK


def test_bad_items_are_counted_and_the_others_kept(daemon, door):
    good = build.span(70 + DOORS.index(door), name=f"kept {door}", attributes={"note": f"kept {door}"})
    no_id = build.span(1)
    no_id.span_id = bytes(8)
    short = build.span(1)
    short.trace_id = b"\x01" * 3
    answer = send(daemon, door, Signal.TRACES, build.traces(good, no_id, short))
    assert (answer.kind, answer.rejected) == (OK, 2)
    assert "id" in answer.message
    assert of_trace(daemon, f"kept {door}")


@pytest.mark.parametrize("body", [b"\xff\xff\xff", b"not a request", b"\x0a\xff"])
def test_a_body_that_is_no_request_is_not_worth_sending_again(daemon, door, body):
    answer = send(daemon, door, Signal.TRACES, body, raw=True)
    assert (answer.kind, answer.retry) == (BAD, None)
    assert "ExportTracesServiceRequest" in answer.message


def test_the_same_bytes_again_are_a_success_and_no_second_event(daemon, door):
    body = chat(90 + DOORS.index(door), note=f"once {door}")
    assert [send(daemon, door, Signal.TRACES, body).kind for _ in range(3)] == [OK] * 3
    assert len(of_trace(daemon, f"once {door}")) == 1


def test_what_names_the_same_run_in_a_header_is_one_run(daemon, door):
    for n in (1, 2):
        one = build.span(1, attributes={"gen_ai.operation.name": "chat", "note": f"in {door} {n}"})
        one.trace_id = bytes([n]) * 15 + door[:1].encode()
        body = build.traces(one)
        assert send(daemon, door, Signal.TRACES, body, x_agentrund_run_id=f"run of {door}").kind == OK
    [first], [second] = of_trace(daemon, f"in {door} 1"), of_trace(daemon, f"in {door} 2")
    assert first["run_id"] == second["run_id"]


# -- HTTP alone ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_other_paths_methods_and_types_are_said_to_be_none(daemon, kind):
    assert post(daemon, "/v1/profiles", b"", door=kind).kind == UNKNOWN
    connection = http.client.HTTPConnection(daemon.http, timeout=20)
    for method, path, headers, status in (
        ("GET", "/v1/traces", {}, 405),
        ("POST", "/v1/traces", {"content-type": "text/plain"}, 415),
        ("POST", "/v1/traces", {}, 415),
        ("POST", "/v1/traces", {"content-type": TYPES[kind], "content-encoding": "br"}, 415),
        ("POST", "/v1/traces/", {"content-type": f"{TYPES[kind].upper()}; charset=utf-8"}, 200),
    ):
        connection.request(method, path, b"" if kind == "protobuf" else b"{}", headers)
        response = connection.getresponse()
        assert (response.status, response.read() is None) == (status, False), (method, path, headers)
        assert status != 405 or response.getheader("allow") == "POST"
    connection.close()


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_bodies_without_a_length_are_read_to_their_end(daemon, kind):
    body = chat(120 + len(kind), note=f"in chunks {kind}")
    if kind == "json":
        from support.otlp_json import to_json

        body = to_json(Signal.TRACES, body)
    chunks = iter([body[:1], body[1:100], body[100:]])
    assert post(daemon, "/v1/traces", chunks, door=kind).kind == OK
    assert of_trace(daemon, f"in chunks {kind}")
    endless = (b"x" * 100_000 for _ in range(100))
    assert post(daemon, "/v1/traces", endless, door=kind).kind == TOO_LARGE


def test_a_connection_serves_a_whole_life_and_requests_one_behind_the_other(daemon):
    body = chat(130, note="pipelined")
    head = f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: {len(body)}\r\n\r\n"
    host, port = daemon.http.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall((head.encode() + body) * 50)
        answers = b""
        while answers.count(b"HTTP/1.1 200") < 50:
            received = raw.recv(1 << 16)
            assert received, answers[-300:]
            answers += received
    connection = http.client.HTTPConnection(daemon.http, timeout=20)
    for _ in range(50):
        connection.request("POST", "/v1/traces", body, {"content-type": TYPES["protobuf"]})
        assert connection.getresponse().read() == b""
        kept = connection.sock.getsockname()
    assert connection.sock.getsockname() == kept, "it is the first one"
    connection.close()


def test_a_sender_that_asks_first_is_answered_first(daemon):
    host, port = daemon.http.rsplit(":", 1)
    for length, answer in ((3, b"HTTP/1.1 100"), (LIMIT + 1, b"HTTP/1.1 413")):
        with socket.create_connection((host, int(port)), timeout=20) as raw:
            raw.sendall(
                f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                f"Content-Length: {length}\r\nExpect: 100-continue\r\n\r\n".encode()
            )
            assert raw.recv(12) == answer


def test_a_head_without_an_end_is_hung_up_on(daemon):
    host, port = daemon.http.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as raw:
        raw.sendall(b"POST /v1/traces HTTP/1.1\r\nX: ")
        with pytest.raises(OSError, match=r"reset|pipe"):
            raw.sendall(b"x" * 50_000_000)


# -- who may -------------------------------------------------------------------------------------------


def test_a_token_is_demanded_and_never_kept(tmp_path, door):
    with Daemon(
        tmp_path, env={"AGENTRUND_TOKEN": TOKEN}, otlp_grpc="127.0.0.1:0", http="127.0.0.1:0"
    ) as guarded:
        for given in ({}, {"authorization": "Bearer no"}, {"authorization": f"Basic {TOKEN}"}):
            answer = send(guarded, door, Signal.TRACES, chat(), **given)
            assert (answer.kind, answer.retry) == (STRANGER, None)
        assert send(guarded, door, Signal.TRACES, chat(), authorization=f"Bearer {TOKEN}").kind == OK
        until(guarded.run_ids, "the run")
        assert json.loads(guarded.cli("status", "--json").stdout)["otlp"]["unauthenticated"] == 3
    for path in guarded.root.rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes()


def test_what_was_answered_with_success_outlives_a_stop(tmp_path, door):
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0", http="127.0.0.1:0") as stopping:

        def one(n: int) -> bool:
            try:
                return (
                    send(stopping, door, Signal.TRACES, chat(n, note=f"body {n} " + "x" * 500_000)).kind == OK
                )
            except (OSError, http.client.HTTPException):
                return False

        with ThreadPoolExecutor(8) as senders:
            answers = [senders.submit(one, n) for n in range(1, 25)]
            until(lambda: any(answer.done() for answer in answers), "the first answer")
            assert stopping.stop() == 0
        stopping.start()
        for n, answer in enumerate(answers, 1):
            assert not answer.result() or of_trace(stopping, f"body {n} ")
