"""Busy agent processes, and whether everything they were promised is in their run."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from support.daemon import Daemon
from support.waiting import until

AGENT = Path(__file__).parent / "busy_agent.py"
COUNT = 5000


class Busy:
    """One agent process and its record."""

    def __init__(self, daemon: Daemon, name: str, session: str = "crowd", count: int = COUNT) -> None:
        self.name = name
        self.count = count
        self.record = daemon.base / f"{name}.record"
        self.stderr = daemon.base / f"{name}.stderr"
        env = {**daemon.env, "AGENTRUND_SOCKET": str(daemon.socket), "AGENTRUND_EXIT_TIMEOUT": "20"}
        with self.stderr.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, str(AGENT), session, name, str(count), str(self.record)],
                stderr=stderr,
                env=env,
            )

    @property
    def killed(self) -> bool:
        """Whether a kill came before its own end."""
        return self.process.returncode == -signal.SIGKILL

    def sent(self) -> int:
        """How many calls have returned."""
        return self._last(b"s ")

    def flushed(self) -> int:
        """How many events were confirmed."""
        return self._last(b"f ")

    def _last(self, prefix: bytes) -> int:
        if not self.record.exists():
            return 0
        lines = [line for line in self.record.read_bytes().split(b"\n")[:-1] if line.startswith(prefix)]
        return int(lines[-1][2:]) + 1 if lines else 0

    def kill(self) -> None:
        self.process.kill()


def wait_all(agents: list[Busy]) -> None:
    for agent in agents:
        code = agent.process.wait(100)
        assert agent.killed or code == 0, agent.stderr.read_text()
        assert agent.stderr.read_text() == ""


def check(daemon: Daemon, agents: list[Busy], *, collector_lived: bool, run_id: str | None = None) -> None:
    """The crowd's run is whole: numbers, order, every event that was promised, each once."""
    if run_id is None:
        [run_id] = daemon.run_ids()
    until(
        lambda: {row["run_id"]: row["status"] for row in daemon.rows()}[run_id] != "running",
        "the end of the run",
    )
    trace = daemon.trace(run_id)
    assert [record["seq"] for record in trace] == list(range(1, len(trace) + 1))
    for agent in agents:
        got = [
            r["payload"]["i"] for r in trace if r["type"] == "log" and r["payload"].get("agent") == agent.name
        ]
        assert got == list(range(len(got))), agent.name
        promised = agent.sent() if collector_lived else agent.flushed()
        assert len(got) >= (promised if agent.killed else agent.count), agent.name
    assert not [r for r in trace if "lost" in r["payload"]]
    # A collector that was killed had perhaps not heard of an agent that was killed with it.
    heard = {r["payload"]["pid"] for r in trace if r["type"] in ("run.start", "run.resume", "source.join")}
    deaths = [r for r in trace if r["type"] == "source.exit" and "process exited" in r["payload"]["cause"]]
    assert len(deaths) == sum(agent.killed and agent.process.pid in heard for agent in agents)
    assert all(agent.process.pid in heard for agent in agents if not agent.killed)
    verify = daemon.cli("verify")
    assert verify.returncode == 0, verify.stdout + verify.stderr
