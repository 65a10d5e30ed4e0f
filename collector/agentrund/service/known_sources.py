"""Which run a source belongs to: while the run is open, and for an hour after it ended (of the last 10,000).

A source that says hello again within that time goes back to its own run and attempt; what it still has
to say is late, and never a resume.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

REMEMBER_S: Final = 3600.0
REMEMBERED: Final = 10_000
"""Ended runs, some 5 MB."""


class KnownSources:
    """Source ids to run ids. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._run_of: dict[str, str] = {}
        self._ended: dict[str, tuple[float, list[str]]] = {}

    def __len__(self) -> int:
        return len(self._run_of)

    def add(self, source: str, run_id: str) -> None:
        """A source has a place in a run."""
        self._run_of[source] = run_id

    def run_of(self, source: str) -> str | None:
        """The run a source belongs to."""
        return self._run_of.get(source)

    def ended(self, run_id: str, sources: list[str], now: float) -> None:
        """A run has ended at ``now``: those of its ``sources`` that have their place there are remembered."""
        mine = [source for source in sources if self._run_of.get(source) == run_id]
        if mine:  # who came over OTLP has none: the sequencer remembers it
            self._ended[run_id] = (now, mine)

    def forget(self, run_id: str, sources: Iterable[str]) -> None:
        """A run is lost: its sources have no place any more."""
        self._ended.pop(run_id, None)
        for source in sources:
            if self._run_of.get(source) == run_id:
                del self._run_of[source]

    def remember(self, run_id: str, sources: list[str], now: float) -> None:
        """As ``ended``, for a run found on disk: sources that have a place elsewhere by now keep it."""
        mine = [source for source in sources if self._run_of.get(source, run_id) == run_id]
        for source in mine:
            self._run_of[source] = run_id
        self.ended(run_id, mine, now)

    def reopened(self, run_id: str) -> None:
        """A run has been resumed: its sources stay."""
        self._ended.pop(run_id, None)

    def expire(self, now: float) -> None:
        """Forget the sources of runs that ended more than an hour ago, or too many runs ago."""
        for run_id, (ended, sources) in list(self._ended.items()):
            if now - ended <= REMEMBER_S and len(self._ended) <= REMEMBERED:
                break  # in the order of their ends
            self.forget(run_id, sources)
