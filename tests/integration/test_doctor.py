"""``agentrund doctor`` on a real collector: what senders did wrong, and lost, is said and counted."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import grpc
import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from agentrund.model.otlp import Signal
from support.daemon import Daemon
from support.otlp_build import field, logs, span, traces
from support.otlp_doors import post, send
from support.otlp_send import send as send_grpc
from support.waiting import until

CHAT = {"gen_ai.operation.name": "chat", "vendor.thing": 1}


@pytest.fixture
def daemon(tmp_path):
    doors = {"otlp_grpc": "127.0.0.1:0", "http": "127.0.0.1:0", "max_request_bytes": "64KiB"}
    with Daemon(tmp_path, **doors) as running:
        yield running


def doctor(daemon: Daemon) -> dict:
    done = daemon.cli("doctor", "--json")
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert done.returncode == any(check["state"] == "problem" for check in told["checks"])
    return told


def problems(told: dict) -> dict[str, str]:
    return {check["what"]: check["message"] for check in told["checks"] if check["state"] == "problem"}


def test_a_collector_that_is_well(daemon):
    told = doctor(daemon)
    assert problems(told) == {}
    assert told["clients"] == []
    done = daemon.cli("doctor")
    assert f"socket: {daemon.socket}: uid " in done.stdout
    assert f"OTLP/gRPC listens on {daemon.otlp}" in done.stdout


def test_what_clients_lost_and_what_no_rule_reads(daemon):
    lossy = span(1, attributes=CHAT, dropped_attributes_count=5, dropped_events_count=1)
    body = traces(lossy, resource={"service.name": "svc"}, scope="lib")
    bad = field(1, field(2, field(2, b"\xff\xff")))
    assert send(daemon, "grpc", Signal.TRACES, body + bad).rejected == 1
    told = until(lambda: (t := doctor(daemon))["clients"] and t, "what came")
    (client, nameless) = sorted(told["clients"], key=lambda one: -len(one["service"]))
    assert (client["service"], client["scope"]) == ("svc", "lib")
    assert (client["unmapped"], client["lost"]) == ({"vendor.thing": 1}, {"attributes": 5, "events": 1})
    assert nameless["items"] == {"bad": 1}
    lost = [check["message"] for check in told["checks"] if check["what"] == "lost"]
    assert "svc, lib: its SDK dropped 5 attributes, 1 events" in lost
    assert "(no service.name): 1 items could not be read" in lost
    # And in the run, once it is over.
    end = LogRecord(event_name="session.end", trace_id=lossy.trace_id, span_id=lossy.span_id)
    until(lambda: any(row["llm_calls"] for row in daemon.rows()), "the run")
    send(daemon, "grpc", Signal.LOGS, logs(end, resource={"service.name": "svc"}))
    path = next(p.parent for p in daemon.root.glob("runs/*/trace.jsonl") if b"vendor.thing" in p.read_bytes())
    until((path / "analytics.json").exists, "its analytics")
    dropped = json.loads((path / "analytics.json").read_text())["dropped"]
    assert (dropped["dropped_attributes"], dropped["dropped_events"]) == (5, 1)


def test_grpc_at_the_http_port(daemon):
    with pytest.raises(grpc.RpcError) as caught:
        send_grpc(daemon.http, "traces", b"")
    assert "http1.x server" in caught.value.details()
    assert "gRPC came to the HTTP port" in problems(doctor(daemon))["protocol"]
    log = daemon.stderr.read_text()
    assert (
        f"{daemon.http} is the HTTP port, and this is HTTP/2 as gRPC speaks it; gRPC goes to {daemon.otlp}"
        in log
    )
    assert log.count("is the HTTP port") == 1, "once a minute"


@pytest.mark.parametrize("door", ["grpc", "protobuf"])
def test_requests_that_are_too_large_or_none_have_a_sender(daemon, door):
    large = traces(span(1, attributes={"text": "x" * 100_000}))
    if door == "grpc":
        assert send(daemon, door, Signal.TRACES, large).kind == "too large"
        assert send(daemon, door, Signal.TRACES, b"\xff\xff\xff").kind == "bad"
        name = "grpc-python/"
    else:
        assert post(daemon, "/v1/traces", large, door=door, user_agent="OTel-X/1").kind == "too large"
        assert post(daemon, "/v1/traces", b"\xff\xff\xff", door=door, user_agent="OTel-X/1").kind == "bad"
        name = "OTel-X/1"
    message = problems(doctor(daemon))["rejected"]
    assert message.startswith(f"2 requests of {name}")


@contextmanager
def rejected(daemon: Daemon, door: str, body: bytes) -> Iterator[None]:
    """A request that was too large, on a connection that stays, as an exporter's does."""
    if door == "grpc":
        with grpc.insecure_channel(daemon.otlp) as channel:
            export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
            with pytest.raises(grpc.RpcError) as caught:
                export(body, timeout=60)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            yield
        return
    with closing(http.client.HTTPConnection(daemon.http, timeout=60)) as connection:
        connection.request("POST", "/v1/traces", body, {"content-type": "application/x-protobuf"})
        response = connection.getresponse()
        assert (response.status, bool(response.read())) == (413, True)
        yield


@pytest.mark.parametrize("door", ["grpc", "protobuf"])
def test_a_request_that_was_rejected_leaves_a_mark_in_the_only_run_of_its_sender(daemon, door):
    root = span(1, start=time.time(), attributes={"gen_ai.operation.name": "invoke_agent"})
    send(daemon, "grpc", Signal.TRACES, traces(root, resource={"session.id": "s"}))
    until(lambda: any(daemon.root.glob("runs/*/trace.jsonl")), "the run")
    large = traces(span(2, attributes={"text": "x" * 100_000}))

    def marks():
        return [r for r in daemon.trace() if r["payload"].get("refused") == "otlp_request"]

    with rejected(daemon, door, large):
        (mark,) = until(marks, "the mark")
    assert (mark["type"], mark["status"]) == ("log", "WARNING")
    assert mark["payload"]["message"].startswith("an OTLP request was rejected: ")
    end = LogRecord(event_name="session.end", trace_id=root.trace_id, span_id=root.span_id)
    send(daemon, "grpc", Signal.LOGS, logs(end, resource={"session.id": "s"}))
    until((daemon.run_dir() / "analytics.json").exists, "its analytics")
    assert json.loads((daemon.run_dir() / "analytics.json").read_text())["dropped"]["refused"] == 1
    until(lambda: daemon.rows()[0]["status"] != "running", "its row")
    assert daemon.cli("verify").stdout == ""


def test_what_came_can_be_read_when_the_collector_has_gone(daemon):
    send(daemon, "grpc", Signal.TRACES, traces(span(1, attributes=CHAT), resource={"service.name": "svc"}))
    until(lambda: doctor(daemon)["clients"], "what came")
    daemon.stop()
    told = doctor(daemon)
    assert "collector" in problems(told)
    assert told["clients"][0]["unmapped"] == {"vendor.thing": 1}
