"""Which run a source belongs to: while the run is open, and for an hour after it ended (of the last 10,000).

A source that says hello again within that time goes back to its own run and attempt; what it still has
to say is late, and never a resume.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

REMEMBER_S: Final = 3600.0
SLACK_S: Final = 60.0
"""Longer at most, for all that goes is looked for at once."""
REMEMBERED: Final = 10_000
"""Ended runs, some 2 MB; beyond it the first tenth of them goes."""


class KnownSources:
    """Source ids to run ids. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._run_of: dict[str, str] = {}
        self._ended: dict[str, float] = {}
        """Runs in the order of their ends."""

    def __len__(self) -> int:
        return len(self._run_of)

    def add(self, source: str, run_id: str) -> None:
        """A source has a place in a run."""
        self._run_of[source] = run_id

    def run_of(self, source: str) -> str | None:
        """The run a source belongs to."""
        return self._run_of.get(source)

    def ended(self, run_id: str, sources: Iterable[str], now: float) -> None:
        """A run has ended at ``now``: those of its ``sources`` that have their place there are remembered."""
        self._ended.pop(run_id, None)
        # Who came over OTLP has no place: the sequencer remembers it.
        if any(self._run_of.get(source) == run_id for source in sources):
            self._ended[run_id] = now

    def forget(self, run_id: str, sources: Iterable[str]) -> None:
        """A run is lost: its sources have no place any more."""
        self._ended.pop(run_id, None)
        for source in sources:
            if self._run_of.get(source) == run_id:
                del self._run_of[source]

    def remember(self, run_id: str, sources: list[str], now: float) -> None:
        """As ``ended``, for a run found on disk: sources that have a place elsewhere by now keep it."""
        for source in sources:
            self._run_of.setdefault(source, run_id)
        self.ended(run_id, sources, now)

    def reopened(self, run_id: str) -> None:
        """A run has been resumed: its sources stay."""
        self._ended.pop(run_id, None)

    def expire(self, now: float) -> None:
        """Forget the sources of runs that ended more than an hour ago, or too many runs ago."""
        many = len(self._ended) - REMEMBERED
        first = next(iter(self._ended.values()), now)
        if many <= 0 and now - first <= REMEMBER_S + SLACK_S:
            return
        least = many + REMEMBERED // 10 if many > 0 else 0
        gone = {
            run_id for n, (run_id, at) in enumerate(self._ended.items()) if n < least or now - at > REMEMBER_S
        }
        self._ended = {run_id: at for run_id, at in self._ended.items() if run_id not in gone}
        self._run_of = {source: run_id for source, run_id in self._run_of.items() if run_id not in gone}
