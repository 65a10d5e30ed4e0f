"""What the control service needs from whoever answers it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from agentrund.model.otlp import Peer


@dataclass(frozen=True, slots=True)
class RunName:
    """A run by its id, or by its session; neither: the caller's own."""

    run_id: str | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """How a run is. ``status`` is running, ok, failed or crashed; ``folder`` is a path on this host."""

    run_id: str
    session_id: str | None
    status: str
    attempt: int
    last_seq: int
    folder: str
    sources: int
    cause: str | None


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a heartbeat: seconds to the next one (0: none is needed), and the caller's open runs."""

    source: str
    every_s: float
    run_ids: list[str]


@dataclass(frozen=True, slots=True)
class CollectorInfo:
    """The collector, and its open runs; ``report`` is all it says of itself, as JSON."""

    version: str
    pid: int
    started_at: str
    root: str
    runs: list[RunInfo]
    report: str


class ControlSink(Protocol):
    """Who answers. All may raise Unavailable (worth another try) and NoSuchRun."""

    async def admit(self, peer: Peer) -> Peer:
        """The caller with its process. Raises Rejected (``not_allowed``) where it may not call."""

    def beat(self, peer: Peer, resource: Mapping[str, str]) -> Beat:
        """The caller is alive."""

    async def end(
        self, peer: Peer, name: RunName, resource: Mapping[str, str], status: str | None, cause: str
    ) -> list[RunInfo]:
        """Runs are over: in a file when this returns. ``status`` is ok or failed, None: as they tell."""

    async def run(self, name: RunName) -> RunInfo:
        """One run, ended or not."""

    def collector(self) -> CollectorInfo:
        """The collector."""

    def tail(self, name: RunName, after: int, *, follow: bool) -> AsyncIterator[tuple[int, bytes]]:
        """The seq and the line of each record after seq ``after``. Raises Overloaded where too many watch."""
