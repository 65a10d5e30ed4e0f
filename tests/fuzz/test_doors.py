"""Thousands of malformed inputs at each door of a real collector: it lives, and stores what is good among them.

A failing test shows its seed; the same seed sends the same bytes.
"""

from __future__ import annotations

import json
import random
import select
import socket
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from agentrund.model.otlp import Signal
from support import http2, mutate
from support.daemon import Daemon
from support.fuzz_seeds import frames, requests
from support.otlp_build import T0, span, traces
from support.otlp_send import SERVICES
from support.raw_client import RawClient
from support.waiting import until

INPUTS = 10_000
GOOD_EVERY = 200
WATCHDOG_S = 10
"""No single answer may take longer; a collector that hangs on an input shows here."""
LOG_MAX = 1 << 20
GROWTH = 1.20
"""From half of them to all: what is remembered of requests and runs fills up to its bounds meanwhile."""


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0") as running:
        yield running


def rss(daemon: Daemon) -> int:
    """Resident pages."""
    return int(Path(f"/proc/{daemon.process.pid}/statm").read_text().split()[1])


def healthy(daemon: Daemon) -> None:
    """Alive, quiet, and everything it wrote is sound."""
    assert daemon.process.poll() is None
    log = daemon.stderr.read_text()
    assert "Traceback" not in log, log[-3000:]
    assert len(log) < LOG_MAX
    with RawClient(daemon.socket) as client:
        client.settle()
    daemon.stop()
    assert daemon.cli("verify").returncode == 0


# -- the stream socket ----------------------------------------------------------------------------

LINES_A_CONNECTION = 50


def talk(daemon: Daemon, chance: random.Random, seeds: list) -> None:
    """One connection: right and wrong frames, hellos and ends at any place among them."""
    lines = [mutate.line(chance, chance.choice(seeds)) for _ in range(LINES_A_CONNECTION)]
    ways = (b'{"op":"hello","source":"s%d"}' % chance.randrange(9), b'{"op":"bye"}', b'{"op":"flush","id":1}')
    for _ in range(chance.randrange(5)):
        lines.insert(chance.randrange(len(lines)), chance.choice(ways))
    data = b"\n".join(lines) + (b"\n" if chance.random() < 0.8 else b"")
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(WATCHDOG_S)
        peer.connect(str(daemon.socket))
        try:
            for start in range(0, len(data), 1 << 16):
                peer.sendall(data[start : start + (1 << 16)])
                drain(peer)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(1 << 16):
                pass
        except (ConnectionResetError, BrokenPipeError):
            return  # it may hang up on a sender it cannot follow


def drain(peer: socket.socket) -> None:
    """Read the answers that are there."""
    while select.select([peer], [], [], 0)[0] and peer.recv(1 << 16):
        pass


def test_the_socket_survives_what_is_sent_to_it(daemon, chance):
    seeds = [frame for frame in frames() if frame.get("op") not in ("do", "status")]
    with RawClient(daemon.socket) as good:
        run_id = good.hello("good")["run_id"]
        rounds = INPUTS // LINES_A_CONNECTION
        before = 0
        for n in range(1, rounds + 1):
            talk(daemon, chance, seeds)
            good.send({"n": n, "type": "log", "payload": {"message": f"good {n}"}})
            good.acked(n)
            if n == rounds // 2:
                before = rss(daemon)
        assert rss(daemon) < before * GROWTH
    said = [r["payload"]["message"] for r in daemon.trace(run_id) if r["type"] == "log"]
    assert [text for text in said if text.startswith("good")] == [f"good {n}" for n in range(1, rounds + 1)]
    healthy(daemon)


# -- OTLP over gRPC -------------------------------------------------------------------------------

ANSWERS = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OK}


def export(channel: grpc.Channel, signal: str):
    """A call with a raw body."""
    method = f"/opentelemetry.proto.collector.{SERVICES[signal]}/Export"
    return channel.unary_unary(method, request_serializer=None, response_deserializer=None)


def good_request(n: int) -> bytes:
    """A trace of one span that nothing else belongs to."""
    one = span(n, name=f"good {n}", start=T0, attributes={"gen_ai.operation.name": "execute_tool"})
    one.trace_id = b"good" + n.to_bytes(12, "big")
    return traces(one, resource={"service.name": "good", "service.instance.id": str(n)})


def test_grpc_survives_what_is_sent_to_it(daemon, chance):
    seeds, before, sent = requests(), 0, 0
    with grpc.insecure_channel(daemon.otlp) as channel:
        calls = {signal: export(channel, signal) for signal in Signal}
        under_way = []
        for n in range(1, INPUTS + 1):
            signal, request = chance.choice(seeds)
            under_way.append(calls[signal].future(mutate.body(chance, request), timeout=WATCHDOG_S))
            if n % GOOD_EVERY == 0:
                sent += 1
                calls[Signal.TRACES](good_request(sent), timeout=WATCHDOG_S)
            if len(under_way) == 100:
                assert {call.code() for call in under_way} <= ANSWERS
                under_way.clear()
            if n == INPUTS // 2:
                before = rss(daemon)
    assert rss(daemon) < before * GROWTH
    wanted = {f"good {n}" for n in range(1, sent + 1)}
    until(lambda: wanted <= names(daemon), "the good ones among them")
    healthy(daemon)


def names(daemon: Daemon) -> set[str]:
    """The names of all records."""
    found = set()
    for path in (daemon.root / "runs").glob("*/trace.jsonl"):
        # A line may be under way.
        found |= {json.loads(line)["name"] for line in path.read_bytes().split(b"\n")[:-1]}
    return found


PIECES_A_CONNECTION = 40
TRIES = 50
AGAIN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
STRANGERS = (
    b"GET /v1/traces HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01",
    b"\x00" * 100,
    http2.PREFACE + http2.frame(http2.SETTINGS),
    http2.PREFACE,
)


def test_the_port_survives_what_is_no_grpc(daemon, chance):
    """Other protocols, and HTTP/2 whose frames are wrong: every piece is answered, or its connection closed."""
    bodies = [message.SerializeToString() for signal, message in requests() if signal is Signal.TRACES]
    taken = good = before = 0
    with grpc.insecure_channel(daemon.otlp) as channel:
        call = export(channel, Signal.TRACES)
        while taken < INPUTS:
            taken += bad_connection(daemon.otlp, chance, bodies)
            if taken // GOOD_EVERY > good:
                good += 1
                deliver(call, good_request(good))
            if before == 0 and taken > INPUTS // 2:
                before = rss(daemon)
    assert rss(daemon) < before * GROWTH
    wanted = {f"good {n}" for n in range(1, good + 1)}
    until(lambda: wanted <= names(daemon), "the good ones among them")
    healthy(daemon)


def deliver(call, body: bytes) -> None:
    """As an exporter does: what is refused for the moment is sent again."""
    for _ in range(TRIES):
        try:
            call(body, timeout=WATCHDOG_S, wait_for_ready=True)
        except grpc.RpcError as error:
            if error.code() not in AGAIN:
                raise
        else:
            return
    pytest.fail("a good request was never taken")


def bad_connection(address: str, chance: random.Random, bodies: list[bytes]) -> int:
    """How many pieces it took before it was over."""
    if chance.random() < 0.2:
        greeting = mutate.in_bytes(chance, chance.choice(STRANGERS), mutate.WIRE)
        with connected(address, greeting) as peer:
            peer.finish()
        return 1
    grammar = http2.Grammar(chance, lambda: chance.choice(bodies))
    taken, going_on = 0, True
    with connected(address, http2.GREETING) as peer:
        while going_on and taken < PIECES_A_CONNECTION:
            going_on = peer.send(grammar.next())
            taken += 1
    return taken


def connected(address: str, greeting: bytes) -> http2.Peer:
    """A connection; where the server is just being replaced, after that."""

    def connect() -> http2.Peer | None:
        with suppress(ConnectionError):
            return http2.Peer(address, WATCHDOG_S, greeting)
        return None

    return until(connect, "somebody to listen")


def test_a_call_whose_path_is_no_text_ends_nothing(daemon):
    """gRPC gives its whole server up over one."""
    with grpc.insecure_channel(daemon.otlp) as channel:
        call = export(channel, Signal.TRACES)
        for n in range(1, 5):
            with connected(daemon.otlp, http2.GREETING) as peer:
                peer.send(http2.call(1, http2.CALL | {b":path": b"/\xff"}, http2.message(b"")))
            deliver(call, good_request(n))
    until(lambda: {f"good {n}" for n in range(1, 5)} <= names(daemon), "the good ones among them")
    assert daemon.stderr.read_text().count("gave its server up") == 1, "said once, and counted"
    healthy(daemon)


def test_a_header_that_is_no_text_is_not_told_to_the_log(daemon):
    with connected(daemon.otlp, http2.GREETING) as peer:
        for n in range(1, 51):
            headers = http2.CALL | {b"authorization": b"Bearer secret\xff"}
            assert peer.send(http2.call(1 + 2 * n, headers, http2.message(good_request(n))))
        wanted = {f"good {n}" for n in range(1, 51)}
        until(lambda: wanted <= names(daemon), "what is good but for that")
    assert "secret" not in daemon.stderr.read_text()
    healthy(daemon)
