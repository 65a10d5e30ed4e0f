"""What comes over OTLP goes on to a second backend: unchanged, in order, whatever happens to either side."""

from __future__ import annotations

import json

import pytest

from agentrund.model.otlp import Signal
from support import otlp_build as build
from support.daemon import Daemon
from support.otlp_backend import Backend
from support.otlp_doors import OK, post, send
from support.otlp_json import to_json
from support.ports import free_port
from support.waiting import until

KEY = "Basic c2VjcmV0OnNlY3JldA=="


def request(n: int, size: int = 0) -> bytes:
    return build.traces(build.span(n, attributes={"gen_ai.operation.name": "chat", "note": "x" * size}))


def collector(tmp_path, url: str, **more) -> Daemon:
    return Daemon(tmp_path, otlp_grpc="127.0.0.1:0", http="127.0.0.1:0", forward=url, **more)


def forwarding(daemon: Daemon) -> dict:
    return json.loads(daemon.cli("status", "--json").stdout)["forwarding"]


def test_requests_go_on_as_they_came(tmp_path):
    env = {
        "AGENTRUND_FORWARD_HEADERS": f"authorization={KEY.replace(' ', '%20').replace('=', '%3D')},x-tenant=7"
    }
    with Backend() as backend, collector(tmp_path, f"{backend.url}/base/", env=env) as daemon:
        as_json = to_json(Signal.TRACES, request(2))
        assert send(daemon, "grpc", Signal.TRACES, request(1)).kind == OK
        assert post(daemon, "/v1/traces", as_json, door="json", coding="gzip").kind == OK
        assert send(daemon, "protobuf", Signal.LOGS, build.logs()).kind == OK
        until(lambda: len(backend.received) == 3, "all three")
        assert [(path, body, headers["content-type"]) for path, body, headers in backend.received] == [
            ("/base/v1/traces", request(1), "application/x-protobuf"),
            ("/base/v1/traces", as_json, "application/json"),
            ("/base/v1/logs", build.logs(), "application/x-protobuf"),
        ]
        assert {(h["authorization"], h["x-tenant"]) for _, _, h in backend.received} == {(KEY, "7")}
        until(lambda: forwarding(daemon)["sent"] == 3, "the count")
        texts = [
            daemon.cli("config").stdout,
            daemon.cli("status", "--json").stdout,
            daemon.stderr.read_text(),
        ]
    texts += [path.read_text(errors="replace") for path in daemon.root.rglob("*") if path.is_file()]
    assert not any("c2VjcmV0" in text for text in texts)


def test_what_comes_while_the_backend_is_away_waits_for_it(tmp_path):
    port = free_port()
    with collector(tmp_path, f"http://127.0.0.1:{port}") as daemon:
        for n in range(1, 6):
            assert send(daemon, "grpc", Signal.TRACES, request(n)).kind == OK
        until(lambda: forwarding(daemon)["trouble"], "the trouble")
        daemon.kill()
        daemon.start()
        assert send(daemon, "grpc", Signal.TRACES, request(6)).kind == OK
        with Backend(port) as backend:
            until(lambda: len(backend.received) >= 6, "all six")
            assert backend.bodies == [request(n) for n in range(1, 7)]
            assert forwarding(daemon)["trouble"] is None
    assert daemon.stderr.read_text().count("forwarding to") <= 2, "once a life, once a minute"


def test_the_place_is_kept_over_restarts(tmp_path):
    with Backend() as backend, collector(tmp_path, backend.url) as daemon:
        for n in range(1, 4):
            send(daemon, "grpc", Signal.TRACES, request(n))
        until(lambda: forwarding(daemon)["sent"] == 3, "three")
        assert daemon.stop() == 0
        daemon.start()
        send(daemon, "grpc", Signal.TRACES, request(4))
        until(lambda: len(backend.received) == 4, "the fourth")
        until((daemon.root / ".agentrund" / "forwarded").exists, "its place")
        # A kill may repeat, and never leaves out.
        daemon.kill()
        daemon.start()
        send(daemon, "grpc", Signal.TRACES, request(5))
        until(lambda: request(5) in backend.bodies, "the fifth")
        assert [body for n, body in enumerate(backend.bodies) if body not in backend.bodies[:n]] == [
            request(n) for n in range(1, 6)
        ]


def test_what_the_backend_refuses_is_counted_and_what_it_wants_later_is_sent_again(tmp_path):
    with Backend() as backend, collector(tmp_path, backend.url) as daemon:
        backend.answers = [(400, {}), (503, {"retry-after": "0"}), (429, {})]
        for n in (1, 2):
            send(daemon, "grpc", Signal.TRACES, request(n))
        until(lambda: forwarding(daemon)["sent"] == 1, "the second one")
        assert backend.bodies == [request(n) for n in (1, 2, 2, 2)]
        found = forwarding(daemon)
        assert (found["refused"], found["unread"], found["trouble"]) == (1, 0, None)
    assert "does not want what is forwarded: HTTP 400" in daemon.stderr.read_text()


def test_a_backend_that_never_answers_delays_nobody(tmp_path):
    with Backend() as backend, collector(tmp_path, backend.url) as daemon:
        backend.gate.clear()
        for n in range(1, 20):
            assert send(daemon, "grpc", Signal.TRACES, request(n)).kind == OK
        until(daemon.rows, "the run")
        assert backend.received == []
        assert daemon.stop() == 0, "within its time"


@pytest.mark.parametrize(
    "url", ["127.0.0.1:4318", "ftp://x", "http://", "http://u:p@x", "http://x/?q", "http://x:99999", "5"]
)
def test_what_is_no_place_to_forward_to_is_refused_at_the_start(tmp_path, url):
    daemon = Daemon(tmp_path, ready=False, forward=url)
    assert daemon.process.wait(30) == 2
    daemon.process.stdout.close()
    assert "`forward`" in daemon.stderr.read_text()
