"""A collector that may not have all the memory it would take: it lets senders wait, or dies and loses nothing."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from support.cgroups import enter, with_memory
from support.daemon import Daemon
from support.memory import MIB
from support.raw_client import RawClient

SENDERS = 6


def log(n: int, text: str) -> dict:
    return {"n": n, "type": "log", "payload": {"message": "x", "text": text}}


def status(daemon: Daemon) -> dict:
    return json.loads(daemon.cli("status", "--json").stdout)


def stored(daemon: Daemon) -> dict[str, set[int]]:
    """The numbers in all traces, by source."""
    found: dict[str, set[int]] = {}
    for run in daemon.run_ids():
        for record in daemon.trace(run):
            if record.get("src", {}).get("n"):
                found.setdefault(record["src"]["id"], set()).add(record["src"]["n"])
    return found


def test_senders_wait_before_the_kernel_kills(tmp_path):
    """Nobody has said how much: what the cgroup may have is what counts."""
    with with_memory(256 * MIB) as group, Daemon(tmp_path, wrapper=enter(group)) as daemon:
        assert status(daemon)["memory"]["max_bytes"] == 192 * MIB
        assert "the kernel gives this cgroup 256 MiB" in daemon.stderr.read_text()

        def send(number: int) -> None:
            with RawClient(daemon.socket) as client:
                client.sock.settimeout(60)
                client.hello(f"s{number}")
                for n in range(1, 4):
                    client.send(log(n, str(n) * (8 * MIB)))
                client.acked(3)

        with ThreadPoolExecutor(SENDERS) as senders:
            list(senders.map(send, range(SENDERS)))
        assert daemon.process.poll() is None
        assert stored(daemon) == {f"s{n}": {1, 2, 3} for n in range(SENDERS)}
        daemon.stop()
        assert daemon.cli("verify").returncode == 0


def test_what_was_acknowledged_is_there_after_the_kernel_has_killed(tmp_path):
    """With a limit that is none: it is warned of, and the restart finds everything."""
    with with_memory(150 * MIB) as group, Daemon(tmp_path, wrapper=enter(group), max_memory="1GiB") as daemon:
        assert "may kill the collector" in daemon.stderr.read_text()
        with RawClient(daemon.socket) as good, RawClient(daemon.socket) as large:
            good.hello("good")
            large.hello("large")
            good.send(*[log(n, "x" * 1000) for n in range(1, 501)])
            acked = 0
            with suppress(OSError, EOFError):
                # It is as it comes, and once more as a whole: within one step far beyond what there is.
                large.send(log(1, "x" * (60 * MIB)))
                while True:
                    acked = good.expect("ack")["n"]
        assert daemon.process.wait(20) == -signal.SIGKILL, "the kernel's"
        daemon.process.stdout.close()
        daemon.wrapper = []
        daemon.start()
        assert acked > 0
        assert set(range(1, acked + 1)) <= stored(daemon)["good"]
        daemon.stop()
        assert daemon.cli("verify").returncode == 0
