"""More than can be carried, larger than can be held, slower than anybody should be: nobody pays for another."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
import pytest

from support import otlp_build
from support.daemon import Daemon
from support.memory import MIB, forget_peak, peak, resident
from support.otlp_send import SERVICES
from support.raw_client import RawClient
from support.waiting import until

LIMIT = 192 * MIB
LARGEST = LIMIT // 16
EXPORT = f"/opentelemetry.proto.collector.{SERVICES['traces']}/Export"


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0", max_memory=f"{LIMIT // MIB}MiB") as running:
        forget_peak(running.process.pid)
        yield running


def status(daemon: Daemon) -> dict:
    return json.loads(daemon.cli("status", "--json").stdout)


def log(n: int, text: str) -> dict:
    return {"n": n, "type": "log", "payload": {"level": "info", "text": text}}


def channel(daemon: Daemon) -> grpc.Channel:
    # A connection of its own, as every program has.
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.insecure_channel(daemon.otlp, options=options)


def export(daemon: Daemon, body: bytes, **how) -> grpc.StatusCode:
    with channel(daemon) as one:
        try:
            one.unary_unary(EXPORT)(body, timeout=60, **how)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def request(n: int, size: int) -> bytes:
    """A request of one span, of another trace each."""
    span = otlp_build.span(1, attributes={"gen_ai.operation.name": "chat", "note": "x" * size})
    span.trace_id = (n + 1).to_bytes(16, "big")
    return otlp_build.traces(span, resource={"service.name": "load"})


def test_large_requests_at_once_wait_outside(daemon):
    bodies = [request(n, LARGEST * 9 // 10) for n in range(16)]
    with ThreadPoolExecutor(16) as senders:
        answers = list(senders.map(lambda body: export(daemon, body), bodies))
    assert answers == [grpc.StatusCode.OK] * 16, "all of them could be served"
    assert peak(daemon.process.pid) < LIMIT
    assert status(daemon)["otlp"]["refused"] == 0


def test_long_lines_at_once_wait_outside(daemon):
    def send(n: int) -> None:
        with RawClient(daemon.socket) as client:
            client.sock.settimeout(60)  # it waits for those before it
            client.hello(f"s{n}")
            client.send(log(1, str(n % 10) * (LARGEST * 9 // 10)), {"n": 2, "type": "run.end"})
            client.acked(2)

    with ThreadPoolExecutor(24) as senders:
        list(senders.map(send, range(24)))
    assert peak(daemon.process.pid) < LIMIT
    assert status(daemon)["memory"]["held_bytes"] == 0


def test_lines_that_never_end_leave_room_for_those_that_do(daemon):
    with ExitStack() as stack:
        for _ in range(200):
            hog = stack.enter_context(socket.socket(socket.AF_UNIX))
            hog.connect(str(daemon.socket))
            hog.setblocking(False)
            try:
                for _ in range(100):
                    hog.send(b"x" * (1 << 18))
            except BlockingIOError:
                continue  # it is not read on: its writes would block
        client = stack.enter_context(RawClient(daemon.socket))
        client.hello("good")
        client.send(log(1, "short"))
        client.acked(1)
        assert peak(daemon.process.pid) < LIMIT


def test_peers_that_read_no_answers_cost_little(daemon):
    with ExitStack() as stack:
        for _ in range(20):
            deaf = stack.enter_context(socket.socket(socket.AF_UNIX))
            deaf.connect(str(daemon.socket))
            deaf.sendall(b"nonsense\n" * 5000)
        client = stack.enter_context(RawClient(daemon.socket))
        client.hello("good")
        client.send(log(1, "short"))
        client.acked(1)
        assert peak(daemon.process.pid) < LIMIT


def test_silent_connections_disturb_nobody(daemon):
    with ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(daemon.socket))
            host, port = daemon.otlp.rsplit(":", 1)
            stack.enter_context(socket.create_connection((host, int(port)))).send(b"P")
        client = stack.enter_context(RawClient(daemon.socket))
        client.hello("good")
        client.send(*[log(n, "x") for n in range(1, 1001)])
        client.acked(1000)
        assert export(daemon, request(0, 10)) is grpc.StatusCode.OK
        assert resident(daemon.process.pid) < 100 * MIB


def test_a_bomb_is_refused_and_counted_and_the_next_request_is_fine(daemon):
    before = resident(daemon.process.pid)
    bomb = request(0, 100 * MIB)
    assert export(daemon, bomb, compression=grpc.Compression.Gzip) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert export(daemon, request(1, LARGEST + 1)) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert peak(daemon.process.pid) < before + 2 * LARGEST
    assert export(daemon, request(2, LARGEST - 1000)) is grpc.StatusCode.OK
    answer = until(lambda: (s := status(daemon))["otlp"]["rejected"] == 2 and s, "the count")
    assert answer["otlp"]["requests"] == 1
    assert daemon.stderr.read_text().count("was rejected") == 1, "said once, and counted"


def test_other_protocols_on_the_grpc_port_leave_a_quiet_log(daemon):
    host, port = daemon.otlp.rsplit(":", 1)
    for n in range(50):
        with socket.create_connection((host, int(port))) as stranger:
            stranger.settimeout(20)
            hello = (
                b"GET / HTTP/1.1\r\n\r\n"
                if n % 2
                else b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)
            )
            stranger.sendall(hello)
            while stranger.recv(1 << 16):
                pass
    assert export(daemon, request(0, 10)) is grpc.StatusCode.OK
    assert len(daemon.stderr.read_text()) < 1000
