"""How the collector is told to stop, and what it says to whom while it runs: nothing it promised is lost by it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.busy import Busy, check, wait_all
from support.daemon import Daemon
from support.processes import TESTS
from support.raw_client import RawClient
from support.waiting import until

STOP_S = 30
"""A watchdog. The promise is five seconds, on a machine that is not busy with something else."""
COUNT = 1500
OTLP_COUNT = 60


class OtlpBusy:
    """One OTLP sender and its record."""

    def __init__(self, daemon: Daemon, name: str) -> None:
        self.name = name
        self.record = daemon.base / f"{name}.record"
        self.process = subprocess.Popen(
            [sys.executable, str(TESTS / "support" / "otlp_busy.py"), str(daemon.socket.with_suffix(".json")),
             name, str(OTLP_COUNT), str(self.record)],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )  # fmt: skip

    def acked(self) -> int:
        return self.record.read_bytes().count(b"\n") if self.record.exists() else 0


def stored(daemon: Daemon, sender: OtlpBusy) -> list[str]:
    """What is stored of a sender, over all runs."""
    records = [record for run_id in daemon.run_ids() for record in daemon.trace(run_id)]
    messages = [r["payload"].get("message") for r in records if r["type"] == "log"]
    return [text for text in messages if isinstance(text, str) and text.startswith(f"{sender.name} ")]


def under_load(daemon: Daemon, end, codes: set[int]) -> None:
    """``end`` it under load, start it again, let the senders finish: everything is there, and once."""
    senders = [OtlpBusy(daemon, f"o{n}") for n in range(2)]
    agents: list[Busy] = []
    try:
        until(lambda: all(sender.acked() > 5 for sender in senders), "OTLP senders at work")
        agents += [Busy(daemon, f"a{n}", count=COUNT) for n in range(6)]
        for part in (1, 2, 3):
            until(lambda part=part: sum(agent.sent() for agent in agents) > part * COUNT // 3, "load")
            # A terminal that is closed ends nothing, however busy it is.
            daemon.process.send_signal(signal.SIGHUP)
        end(daemon.process)
        assert daemon.process.wait(STOP_S) in codes
        daemon.process.stdout.close()
        acked = [sender.acked() for sender in senders]
        daemon.start()
        wait_all(agents)
        for sender, before in zip(senders, acked, strict=True):
            assert sender.process.wait(100) == 0
            assert sender.acked() == OTLP_COUNT > before
    finally:
        for busy in (*agents, *senders):
            busy.process.kill()
            busy.process.wait()
    for sender in senders:
        until(lambda sender=sender: len(stored(daemon, sender)) >= OTLP_COUNT, "what was acknowledged")
        assert sorted(stored(daemon, sender)) == sorted(f"{sender.name} {i}" for i in range(OTLP_COUNT))
    crowd = Path(os.readlink(daemon.root / "sessions" / "crowd")).name
    check(daemon, agents, collector_lived=False, run_id=crowd)
    assert daemon.cli("verify").returncode == 0


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0") as running:
        yield running


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)], ids=lambda n: n.name
)
def test_a_signal_ends_it_in_order(daemon, number):
    under_load(daemon, lambda process: process.send_signal(number), {0})


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(daemon):
    def end(process):
        # Both wait for it when it wakes up: none of them can come too late.
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)

    under_load(daemon, end, {130})


# -- nobody listens to what it says ---------------------------------------------------------------


class Unheard(Daemon):
    """A collector whose standard descriptors are the test's affair; ready when its discovery file is there."""

    def __init__(self, base: Path, stdout, **settings: str) -> None:
        self.stdout = stdout
        super().__init__(base, **settings)

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=self.stdout,
            stderr=self.stdout,
            env=self.env,
            cwd=self.base,
        )
        until(self.socket.with_suffix(".json").exists, "the discovery file")

    def _reap(self) -> int:
        self.process.stdin.close()
        return self.process.wait(20)

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.kill()

    def works(self, source: str) -> None:
        with RawClient(self.socket) as client:
            client.hello(source)
            client.send({"n": 1, "type": "log"}, {"n": 2, "type": "run.end"})
            client.acked(2)


def test_a_pipe_that_nobody_reads_does_not_hold_it_up(tmp_path):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    filler = 0
    try:
        while True:
            filler += os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    with Unheard(tmp_path, writer) as daemon:
        os.close(writer)
        for _ in range(3):
            daemon.process.send_signal(signal.SIGHUP)  # it says so, each time
            daemon.works("a")
        while filler:
            filler -= len(os.read(reader, filler))
        daemon.process.send_signal(signal.SIGHUP)
        said = os.read(reader, 1 << 16)
        assert b"lines were not said here: nobody read them)\n" in said
        assert daemon.stop() == 0
    os.close(reader)


def test_a_pipe_whose_reader_has_gone_does_not_end_it(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    with Unheard(tmp_path, writer) as daemon:
        os.close(writer)
        daemon.process.send_signal(signal.SIGHUP)
        daemon.works("a")
        assert daemon.stop() == 0


def test_closed_descriptors_are_not_given_to_its_files(tmp_path):
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    with Unheard(tmp_path, subprocess.DEVNULL, wrapper=closed) as daemon:
        daemon.works("a")
        links = [os.readlink(f"/proc/{daemon.process.pid}/fd/{fd}") for fd in range(3)]
        assert links == ["/dev/null"] * 3
        assert daemon.stop() == 0
