"""Short runs, one after the other, in every way to tell one: they leave nothing behind in the collector."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from support import otlp_build
from support.daemon import Daemon
from support.memory import resident
from support.otlp_send import SERVICES
from support.raw_client import RawClient
from support.waiting import until

SENDERS = 4
EXPORT = f"/opentelemetry.proto.collector.{SERVICES['logs']}/Export"

Teller = Callable[[Daemon, Iterable[int]], None]
"""Tells runs, each finished before the next begins."""


def with_hello(daemon: Daemon, numbers: Iterable[int]) -> None:
    with RawClient(daemon.socket) as client:
        for n in numbers:
            client.send({"op": "hello", "v": 1, "source": f"s{n}"}, log(1), {"n": 2, "type": "run.end"})
            client.acked(2)


def without_hello(daemon: Daemon, numbers: Iterable[int]) -> None:
    for _ in numbers:
        with socket.socket(socket.AF_UNIX) as shell:
            shell.connect(str(daemon.socket))
            shell.sendall(json.dumps(log(1)).encode() + b"\n")
            shell.shutdown(socket.SHUT_WR)
            while shell.recv(1 << 16):
                pass


def over_otlp(daemon: Daemon, numbers: Iterable[int]) -> None:
    with grpc.insecure_channel(daemon.otlp, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = channel.unary_unary(EXPORT)
        for n in numbers:
            session = otlp_build.key_values({"session.id": f"s{n}"})
            said, end = (LogRecord(event_name=name, attributes=session) for name in ("said", "session.end"))
            call(otlp_build.logs(said, end, resource={"service.instance.id": "prog"}), timeout=60)


def log(n: int) -> dict:
    return {"n": n, "type": "log", "payload": {"level": "info", "text": "x"}}


def status(daemon: Daemon) -> dict:
    done = daemon.cli("status", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def is_idle(daemon: Daemon) -> bool:
    now = status(daemon)
    busy = now["finalising"] or now["otlp"]["waiting"] or now["memory"]["held_bytes"]
    return not now["open_runs"] and not busy


def tell_all(daemon: Daemon, tell: Teller, first: int, count: int) -> None:
    with ThreadPoolExecutor(SENDERS) as senders:
        parts = [range(first + part, first + count, SENDERS) for part in range(SENDERS)]
        list(senders.map(lambda numbers: tell(daemon, numbers), parts))
    try:
        until(lambda: is_idle(daemon), "the ends of all runs")
    except AssertionError as error:
        raise AssertionError(f"{error}; {status(daemon)}") from error


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0") as running:
        yield running


@pytest.mark.parametrize("tell", [with_hello, without_hello, over_otlp])
@pytest.mark.parametrize(
    ("burst", "bursts", "share"),
    [(900, 2, 1.15), pytest.param(1000, 50, 1.15, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])],
)
def test_short_runs_leave_nothing_behind(daemon, tell, burst, bursts, share):
    """Bursts of one size: what is under way at once has its price, and so have the last 1,000 ended runs."""
    tell_all(daemon, tell, 0, burst)
    before = resident(daemon.process.pid)
    for n in range(1, bursts):
        tell_all(daemon, tell, n * burst, burst)
    after = resident(daemon.process.pid)
    assert after < before * share, f"{before >> 20} MiB after a burst, {after >> 20} MiB after {bursts}"
    assert len(os.listdir(f"/proc/{daemon.process.pid}/fd")) < 600
    assert len(daemon.run_ids()) == burst * bursts
