"""SIGKILL at the n-th call that changes something, for n = 1, 2, 3 … until a life of the collector passes.

strace kills the collector inside the call (``inject=write:signal=KILL:when=n``, counted for each thread);
it is started again without strace, the senders finish, and the oracle looks at what is there. A life is
played in each ``sync`` mode: their calls, and so the points to die at, are others. Not with
``--seccomp-bpf``: strace 6.1 was seen to inject nothing at all with it and ``-f``.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from crash import oracle
from crash.engine import Score
from crash.ledger import read_all
from crash.oracle import Violation
from crash.sender import Orders, run
from crash.world import verified, without_sockets
from support.daemon import Daemon
from support.ports import free_port
from support.settled import Settled

NAMES = {"interval": "nth-syscall", "always": "nth-syscall-always"}
"""The row of each ``sync`` mode."""
CALLS = (
    *("write", "writev", "pwrite64", "ftruncate", "mkdir", "mkdirat", "rename", "renameat", "unlinkat"),
    *("symlinkat", "fsync", "fdatasync", "syncfs", "sendto"),
)
EVENTS = 48
RATE = 200.0
"""So that most events are a read, a write and an acknowledgement of their own."""
PATIENCE_S = 60.0
AT_ONCE = 3
"""Trials side by side: they mostly wait."""


def available() -> bool:
    """Whether strace is there."""
    return shutil.which("strace") is not None


def play(sync: str, seed: int, most: int, *, every: bool, kept: Callable[[], Path]) -> Score:
    """Kill at up to ``most`` points: at every one, call by call, or (``every`` False) at random ones."""
    name = NAMES[sync]
    score = Score(name, seed)
    reached: dict[str, int] = {}
    waves = _each(reached) if every else _some(random.Random(f"{name}/{seed}"))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while score.trials < most and (wave := next(waves)):
            for (call, n), (died, violations) in zip(
                wave, pool.map(lambda point: _trial(sync, *point, kept), wave), strict=True
            ):
                score.trials += died
                score.violations += violations
                if not died:
                    reached[call] = min(n - 1, reached.get(call, n))
    if every:
        score.note = ", ".join(f"{call} {n}" for call, n in reached.items() if n)
    return score


Wave = list[tuple[str, int]]
"""Calls and which of them, tried side by side."""


def _each(reached: Mapping[str, int]) -> Iterator[Wave]:
    """Every n of every call that a whole life reaches; ends with an empty wave."""
    for first in itertools.count(1, AT_ONCE):
        left = [call for call in CALLS if call not in reached]
        yield [(call, n) for call in left for n in range(first, first + AT_ONCE)]


def _some(chance: random.Random) -> Iterator[Wave]:
    while True:
        calls = [chance.choice(CALLS) for _ in range(AT_ONCE)]
        yield [(call, chance.randrange(1, 20 if call in ("write", "sendto") else 4)) for call in calls]


def _trial(sync: str, call: str, n: int, kept: Callable[[], Path]) -> tuple[bool, list[Violation]]:
    with tempfile.TemporaryDirectory(prefix="crash-") as base:
        trial = Trial(Path(base), sync, call, n)
        try:
            violations = trial.play()
        except Exception as error:
            violations = [Violation("play", f"{call} {n}", f"{type(error).__name__}: {error}")]
        if violations:
            target = kept() / f"{NAMES[sync]}-{call}-{n}"
            shutil.copytree(base, target, symlinks=True, dirs_exist_ok=True, ignore=without_sockets)
            violations.append(Violation("kept", str(target), ""))
    return trial.died, violations


class Trial:
    """One life that ends at its n-th call, and the next one that heals it."""

    def __init__(self, base: Path, sync: str, call: str, n: int) -> None:
        self.base = base
        self.sync = sync
        self.died = False
        self._wrapper = [
            *("strace", "-f", "-qq", "-o", "/dev/null"),
            *("-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={n}"),
        ]
        self._port = free_port()

    def play(self) -> list[Violation]:
        """Both lives; what is wrong after them."""
        settings = {
            "otlp_grpc": f"127.0.0.1:{self._port}",
            "idle_timeout": "300ms",
            "sync": self.sync,
        }
        daemon = Daemon(self.base, wrapper=self._wrapper, ready=False, **settings)
        threads = [
            threading.Thread(target=run, args=(orders,), daemon=True) for orders in self._orders(daemon)
        ]
        for thread in threads:
            thread.start()
        self._first_life(daemon, threads)
        daemon.wrapper = []
        daemon.start()
        with daemon:
            for thread in threads:
                thread.join(PATIENCE_S)
                if thread.is_alive():
                    return [Violation("play", "sender", "does not come to its end")]
            return self._judge(daemon)

    def _first_life(self, daemon: Daemon, threads: list[threading.Thread]) -> None:
        """Until it is killed, or everything is done and it has ended in order."""
        while any(thread.is_alive() for thread in threads):
            threads[0].join(0.02)
            if daemon.process.poll() is not None:
                self.died = True
                return
        if Settled(daemon, PATIENCE_S).wait() is None:
            # strace hands no signal on: the collector itself is asked to end.
            pid = json.loads(daemon.socket.with_suffix(".json").read_text())["pid"]
            os.kill(pid, signal.SIGTERM)
        self.died = daemon.process.wait(PATIENCE_S) != 0

    def _judge(self, daemon: Daemon) -> list[Violation]:
        unsettled = Settled(daemon, PATIENCE_S).wait()
        found = [] if unsettled is None else [Violation("play", "collector", unsettled)]
        found += oracle.judge(daemon.root, read_all(self.base))
        found += verified(daemon.root)
        text = daemon.stderr.read_text()
        if "Traceback" in text:
            found.append(Violation("play", "collector's log", text[-1500:]))
        return found

    def _orders(self, daemon: Daemon) -> list[Orders]:
        return [
            Orders(
                kind,
                kind,
                str(self.base),
                str(self.base / "stop"),
                str(daemon.socket),
                daemon.settings["otlp_grpc"],
                None,
                RATE,
                most=EVENTS,
                largest=30_000,
            )
            for kind in ("stream", "otlp-spans")
        ]
