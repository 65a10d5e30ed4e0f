"""More than can be carried, larger than can be held, slower than anybody should be: nobody pays for another."""

from __future__ import annotations

import gzip
import json
import socket
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
import pytest
import zstandard

from agentrund.model.otlp import Signal
from agentrund.service.config import MEMORY_BASE
from support import otlp_build, otlp_doors
from support.daemon import Daemon
from support.memory import MIB, forget_peak, peak, resident
from support.otlp_doors import BAD, BUSY, OK, TOO_LARGE, post, send
from support.otlp_send import SERVICES
from support.raw_client import RawClient
from support.waiting import until

LIMIT = 160 * MIB
LARGEST = (LIMIT - MEMORY_BASE) // 15
EXPORT = f"/opentelemetry.proto.collector.{SERVICES['traces']}/Export"


@pytest.fixture
def daemon(tmp_path):
    doors = {"otlp_grpc": "127.0.0.1:0", "http": "127.0.0.1:0"}
    with Daemon(tmp_path, **doors, max_memory=f"{LIMIT // MIB}MiB") as running:
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


@pytest.mark.parametrize("door", otlp_doors.DOORS)
def test_large_requests_at_once_wait_outside(daemon, door):
    bodies = [request(n, LARGEST * 9 // 10) for n in range(16)]

    def one(body: bytes) -> str:
        # An exporter repeats what it is told to repeat.
        return until(
            lambda: (kind := send(daemon, door, Signal.TRACES, body).kind) != BUSY and kind, "an answer"
        )

    with ThreadPoolExecutor(16) as senders:
        assert list(senders.map(one, bodies)) == [OK] * 16
    assert peak(daemon.process.pid) < LIMIT
    assert door != "grpc" or status(daemon)["otlp"]["refused"] == 0, "a gRPC sender says how long it waits"


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
    until(lambda: status(daemon)["memory"]["held_bytes"] == 0, "room again, once all of it is on the disk")


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


@pytest.mark.parametrize("count", [300, pytest.param(2500, marks=pytest.mark.slow)])
def test_silent_connections_disturb_nobody(daemon, count):
    """As many to each TCP door, and twice as many to the socket."""
    before = resident(daemon.process.pid)
    with ExitStack() as stack:
        for _ in range(count):
            for _ in range(2):
                stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(daemon.socket))
            for address in (daemon.otlp, daemon.http):
                host, port = address.rsplit(":", 1)
                stack.enter_context(socket.create_connection((host, int(port)))).send(b"P")
        client = stack.enter_context(RawClient(daemon.socket))
        client.hello("good")
        client.send(*[log(n, "x") for n in range(1, 1001)])
        client.acked(1000)
        assert export(daemon, request(0, 10)) is grpc.StatusCode.OK
        assert send(daemon, "json", Signal.TRACES, request(1, 10)).kind == OK
        assert resident(daemon.process.pid) - before < 20 * MIB + 4 * count * (16 << 10)


@pytest.mark.parametrize("door", ["protobuf", "json"])
def test_bombs_of_every_make_stop_at_the_limit_and_the_next_request_is_fine(daemon, door):
    before = resident(daemon.process.pid)
    bomb = bytes(100 * MIB)
    members = gzip.compress(bytes(MIB)) * 100
    for coding, packed in (
        ("gzip", gzip.compress(bomb)),
        ("gzip", members),
        ("deflate", zlib.compress(bomb)),
        ("zstd", zstandard.compress(bomb)),
    ):
        answer = post(daemon, "/v1/traces", packed, door=door, content_encoding=coding)
        assert answer.kind == TOO_LARGE, coding
    nested = gzip.compress(gzip.compress(bomb))
    assert post(daemon, "/v1/traces", nested, door=door, content_encoding="gzip").kind == BAD
    assert peak(daemon.process.pid) < before + 2 * LARGEST
    assert send(daemon, door, Signal.TRACES, request(2, 10)).kind == OK


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
