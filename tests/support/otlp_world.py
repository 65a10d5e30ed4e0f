"""Programs that send mapped items, and a collector that runs their commands, on a clock of our own."""

from __future__ import annotations

from agentrund.model.otlp import Mapped, Peer, Resource
from agentrund.model.source import Identity
from agentrund.sequencer.otlp_runs import OtlpRuns
from support.otlp_build import T0
from support.otlp_execute import Executor, Run


class World:
    """``now`` counts from ``T0``; every item is sent by the process ``pid``, or by one nobody knows."""

    def __init__(self, **settings) -> None:
        self.runs = OtlpRuns(**settings)
        self.executor = Executor()
        self.now = 0.0
        self._rq = 0

    def take(
        self,
        *items: Mapped,
        pid: int | None = 1,
        run_id: str | None = None,
        host: str = "127.0.0.1",
        hung_up: bool = False,
    ) -> int:
        self._rq += 1
        peer = Peer(host, 4000, run_id, identity(pid), hung_up)
        for part in self.runs.take(self._rq, T0 + self.now, peer, list(items), T0 + self.now):
            self.perform(part)
        return self._rq

    def pass_time(self, seconds: float) -> None:
        """Let time pass in ticks of a quarter second (large gaps in one)."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + (0.25 if seconds < 100 else seconds))
            for part in self.runs.tick(T0 + self.now):
                self.perform(part)

    def exit(self, pid: int = 1, cause: str = "process exited: killed by SIGKILL") -> None:
        self.runs.process_exited(identity(pid), cause, T0 + self.now, T0 + self.now)

    def shut_down(self) -> None:
        for part in self.runs.shutdown(T0 + self.now):
            self.perform(part)

    def perform(self, commands) -> None:
        self.executor.perform(commands, T0 + self.now)

    @property
    def all_runs(self) -> list[Run]:
        return self.executor.all_runs()

    @property
    def run(self) -> Run:
        (only,) = self.all_runs
        return only

    def shown(self) -> list[tuple[str, str | None]]:
        """Type and name of the run's records that are the agent's own."""
        return [(r.type, r.name) for r in self.run.records if r.src is not None]


def identity(pid: int | None) -> Identity:
    return Identity() if pid is None else Identity(pid=pid, pid_start=pid * 10, boot_id="boot", uid=1000)


def program(name: str) -> Resource:
    """The resource of a program with an instance id."""
    return Resource({"service.name": name, "service.instance.id": name})
