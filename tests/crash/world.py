"""One trial's world: a root, a collector, senders with ledgers, and things outside that nobody may touch."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from agentrund.views.folder import Root
from agentrund.views.verify import verify
from crash import oracle
from crash.ledger import read_all
from crash.oracle import Violation
from crash.scenario import Scenario
from crash.sender import Orders
from support.daemon import Daemon
from support.ports import free_port
from support.settled import Settled

TESTS = Path(__file__).parent.parent
FINISH_S = 90.0
"""Senders that are asked to finish, on a loaded machine, after any fault; then they hang."""


class Sender:
    """A sender process."""

    def __init__(self, orders: Orders, env: dict[str, str], log: Path) -> None:
        self.orders = orders
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "crash.sender", orders.text()], env=env, stderr=stderr
            )

    def kill(self) -> None:
        """SIGKILL, and reap."""
        self.process.kill()
        self.process.wait()


class World:
    """Made for a scenario and a random source; what goes wrong while it is played is in ``violations``."""

    def __init__(self, scenario: Scenario, chance: random.Random, base: Path) -> None:
        self.scenario = scenario
        self.chance = chance
        self.base = base
        self.trials = 0
        self.violations: list[Violation] = []
        self.restarts_s: list[float] = []
        self.senders: list[Sender] = []
        self._made = 0
        self.root = base / "disk" / "root"
        self.ledgers = base / "ledgers"
        self.stop_file = base / "stop"
        for folder in (self.root.parent, self.ledgers, base / "outside"):
            folder.mkdir()
        (base / "outside" / "canary").write_text("nobody may touch this\n")
        self._outside = oracle.picture(base / "outside")
        self._mount()
        doors = {name: f"127.0.0.1:{free_port()}" for name in ("otlp_grpc", "http")}
        settings = {**doors, **scenario.settings}
        self.daemon = Daemon(base, root=self.root, **settings)
        for kind in scenario.load.kinds():
            self.add_sender(kind)
        self._wait_for_everybody()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for sender in self.senders:
            if sender.process.poll() is None:
                sender.kill()
        if self.daemon.process.poll() is None:
            self.daemon.process.send_signal(signal.SIGCONT)
            self.daemon.kill()
        if self.scenario.disk is not None:
            subprocess.run(["umount", "-l", str(self.root.parent)], check=True)

    def _mount(self) -> None:
        disk = self.scenario.disk
        if disk is None:
            return
        options = f"size={disk.size}" + (f",nr_inodes={disk.inodes}" if disk.inodes else "")
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "agentrund-test", str(self.root.parent)], check=True
        )

    # -- what steps do ------------------------------------------------------------------------------

    def add_sender(self, kind: str) -> None:
        """One more sender; every second one shares a session with others, or sends JSON over HTTP."""
        self._made += 1
        shared = kind in ("stream", "client") and self._made % 2
        load, settings = self.scenario.load, self.daemon.settings
        orders = Orders(
            kind,
            f"{kind}-{self._made}",
            str(self.ledgers),
            str(self.stop_file),
            str(self.daemon.socket),
            f"http://{settings['http']}" if self._made % 2 else settings["otlp_grpc"],
            "crowd" if shared else None,
            load.rate,
            largest=load.largest,
            hasty=load.hasty,
        )
        env = {
            **self.daemon.env,
            "AGENTRUND_SOCKET": str(self.daemon.socket),
            "AGENTRUND_EXIT_TIMEOUT": "60",
            "PYTHONPATH": str(TESTS),
        }
        self.senders.append(Sender(orders, env, self.base / "senders.txt"))

    def _wait_for_everybody(self) -> None:
        """Faults begin when every sender sends."""
        deadline = time.monotonic() + FINISH_S
        while sum(bool(account.sent) for account in read_all(self.ledgers)) < len(self.senders):
            if time.monotonic() > deadline:
                raise TimeoutError("not every sender has begun")
            time.sleep(0.02)

    def start(self) -> None:
        """Start the collector again, and note how long that took."""
        began = time.monotonic()
        try:
            self.daemon.start()
        except AssertionError as error:
            self.fail("start", f"the collector does not start: {error}")
            raise
        self.restarts_s.append(time.monotonic() - began)

    def acked(self) -> int:
        """Events acknowledged so far, by all ledgers."""
        return sum(account.acked for account in read_all(self.ledgers))

    def fail(self, where: str, what: str) -> None:
        """Something went wrong while playing."""
        self.violations.append(Violation("play", where, what))

    # -- the end ------------------------------------------------------------------------------------

    def judge(self) -> list[Violation]:
        """Let everybody finish, then look at everything that is left."""
        self.stop_file.touch()
        deadline = time.monotonic() + FINISH_S
        for sender in self.senders:
            try:
                code = sender.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.fail(sender.orders.producer, "does not come to its end")
                sender.kill()
            else:
                if code not in (0, -signal.SIGKILL):
                    self.fail(sender.orders.producer, f"ended with {code}")
        unsettled = Settled(self.daemon, deadline - time.monotonic()).wait()
        if unsettled is not None:
            self.fail("collector", unsettled)
        accounts = read_all(self.ledgers)
        self.trials += sum(account.repeated for account in accounts)
        self.violations += oracle.judge(self.root, accounts, returned=self.scenario.returned)
        self.violations += oracle.outside(self._outside, oracle.picture(self.base / "outside"))
        self.violations += verified(self.root)
        self._look_at_log()
        return self.violations

    def _look_at_log(self) -> None:
        text = self.daemon.stderr.read_text()
        if "Traceback" in text:
            self.fail("collector's log", text[text.index("Traceback") :][:1500])
        most = self.scenario.quiet_log_bytes
        if most and len(text) > most:
            self.fail("collector's log", f"{len(text)} bytes: {text[:300]}")
        senders = (self.base / "senders.txt").read_text() if self.senders else ""
        if senders:
            self.fail("senders' stderr", senders[:1500])

    def keep(self, folder: Path) -> Path:
        """Copy what is left for a person to look at."""
        target = folder / self.base.name
        shutil.copytree(self.base, target, symlinks=True, dirs_exist_ok=True, ignore=without_sockets)
        return target


def verified(root: Path) -> list[Violation]:
    """What the product's own `verify` finds."""
    return [
        Violation("verify", f"{finding.path}:{finding.offset}", finding.message)
        for finding in verify(Root(root))
    ]


def without_sockets(folder: str, names: list[str]) -> list[str]:
    """For copies of a world: a socket cannot be copied."""
    return [name for name in names if Path(folder, name).is_socket()]
