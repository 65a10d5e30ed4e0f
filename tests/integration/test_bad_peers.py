"""Hundreds of peers that begin and never end, hear nothing, or are gone without a word: others are served."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest

from support import http2, otlp_build
from support.daemon import Daemon
from support.netns import connected_pair
from support.otlp_send import SERVICES
from support.raw_client import RawClient

EACH = 125
"""Of four kinds: five hundred."""
WAIT_S = 60
EXPORT = f"/opentelemetry.proto.collector.{SERVICES['traces']}/Export"
DAWDLE = http2.call(1, http2.CALL, http2.message(b"x" * 100)[:20], b"")[:-9]
"""A request whose message never ends."""


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0") as running:
        yield running


def log(n: int) -> dict:
    return {"n": n, "type": "log", "payload": {"message": "x"}}


def request(n: int) -> bytes:
    one = otlp_build.span(1, attributes={"gen_ai.operation.name": "chat"})
    one.trace_id = n.to_bytes(16, "big")
    return otlp_build.traces(one, resource={"service.name": "good"})


def deliver(export, body: bytes) -> None:
    """As an exporter does: what it is told to send again is sent again."""
    for _ in range(3):
        try:
            export(body, timeout=WAIT_S)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        else:
            return
    pytest.fail("it was never taken")


def descriptors(daemon: Daemon) -> int:
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


@contextmanager
def bad_peers(daemon: Daemon, each: int) -> Iterator[None]:
    """On either door: those that dawdle, and those that send and never read."""
    host, _, port = daemon.otlp.rpartition(":")
    with ExitStack() as stack:
        for n in range(each):
            slow = stack.enter_context(socket.socket(socket.AF_UNIX))
            slow.connect(str(daemon.socket))
            slow.sendall(b'{"op":"hello","source":"slow-%d"' % n)
            deaf = stack.enter_context(socket.socket(socket.AF_UNIX))
            deaf.connect(str(daemon.socket))
            deaf.setblocking(False)
            deaf.send(b"nonsense\n" * 5000)
            half = stack.enter_context(socket.create_connection((host, int(port))))
            half.sendall(http2.PREFACE[: 1 + n % len(http2.PREFACE)])
            dawdler = stack.enter_context(http2.Peer(daemon.otlp, WAIT_S, http2.GREETING))
            assert dawdler.send(DAWDLE)
        yield


@pytest.mark.timeout(180)
def test_good_clients_are_served_among_five_hundred_bad_ones(daemon):
    with RawClient(daemon.socket) as known, grpc.insecure_channel(daemon.otlp) as channel:
        known.hello("known")
        export = channel.unary_unary(EXPORT)
        export(request(1), timeout=WAIT_S)
        with bad_peers(daemon, EACH):
            for n in range(1, 51):
                known.send(log(n))
                known.acked(n)
                export(request(1 + n), timeout=WAIT_S)
            with RawClient(daemon.socket) as new:
                new.hello("new")
                new.send(log(1))
                new.acked(1)
            options = [("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel(daemon.otlp, options=options) as other:
                deliver(other.unary_unary(EXPORT), request(1000))
    assert len(daemon.stderr.read_text()) < 10_000


# -- a network that has gone --------------------------------------------------------------------------

FAR = """
import socket, sys
sys.path.insert(0, sys.argv[3])
from support import http2
peers = [http2.Peer(sys.argv[1], 20, http2.GREETING) for _ in range(int(sys.argv[2]))]
for n, peer in enumerate(peers):
    assert peer.send(bytes.fromhex(sys.argv[4]) if n % 2 else b"")
print("ready", flush=True)
sys.stdin.read()
"""


def gone_peers(daemon: Daemon, there, here, count: int) -> subprocess.Popen:
    """Connections from a machine whose cable is then pulled out."""
    port = daemon.otlp.rpartition(":")[2]
    command = [
        *there.enter, sys.executable, "-c", FAR, f"{here.address}:{port}", str(count),
        str(Path(__file__).parents[1]), DAWDLE.hex(),
    ]  # fmt: skip
    far = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert far.stdout.readline() == "ready\n"
    subprocess.run(["ip", "-n", there.name, "link", "set", "e0", "down"], check=True)
    return far


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_peers_whose_network_has_gone_are_given_up_and_others_are_served(tmp_path):
    """Nothing tells that they are gone but that they answer no ping."""
    with connected_pair() as (here, there):
        flags = ("--insecure",)
        with Daemon(tmp_path, otlp_grpc="0.0.0.0:0", wrapper=here.enter, flags=flags) as daemon:
            before = descriptors(daemon)
            far = gone_peers(daemon, there, here, 500)
            try:
                assert descriptors(daemon) >= before + 500
                with RawClient(daemon.socket) as good:
                    good.hello("good")
                    for n in range(1, 101):
                        good.send(log(n))
                        good.acked(n)
                    done = threading.Event()
                    waiter = threading.Timer(180, done.set)
                    waiter.start()
                    while descriptors(daemon) > before + 20 and not done.wait(1):
                        pass
                    waiter.cancel()
                    assert descriptors(daemon) <= before + 20, "they were given up"
                    good.send(log(101))
                    good.acked(101)
            finally:
                far.kill()
                far.wait()
                far.stdin.close()
                far.stdout.close()
            daemon.process.send_signal(signal.SIGTERM)
            assert daemon.process.wait(WAIT_S) == 0
    assert len(daemon.stderr.read_text()) < 10_000
