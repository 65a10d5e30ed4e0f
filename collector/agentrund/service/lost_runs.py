"""Runs whose trace was removed or changed by somebody else while they were open.

Nothing more is written to such a run: its seqs could repeat. It is told to nobody any more for as long as we
run, and whoever was in it comes again, into a new run whose arrival record says why (``instead_of``).
"""

from __future__ import annotations

from collections.abc import Iterable

from agentrund.model.errors import RunUnusable
from agentrund.model.event import Json
from agentrund.model.source import Arrival


class LostRuns:
    """Run ids with what happened to them, and the sources that were in them."""

    def __init__(self) -> None:
        self._why: dict[str, RunUnusable] = {}
        self._bereft: dict[str, str] = {}

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._why

    def add(self, run_id: str, sources: Iterable[str], why: RunUnusable) -> None:
        """A run is lost, and these sources have to go elsewhere."""
        self._why[run_id] = why
        self._bereft.update(dict.fromkeys(sources, run_id))

    def check(self, run_id: str) -> None:
        """Raises RunUnusable for a run that is lost."""
        why = self._why.get(run_id)
        if why is not None:
            raise RunUnusable(why.message, hint=why.hint)

    def explain(self, who: Arrival) -> None:
        """Say in an arrival which run it would have gone on in, and why it does not."""
        run_id = self._bereft.pop(who.source, None)
        if run_id is not None:
            instead: Json = {"run_id": run_id, "why": self._why[run_id].message}
            who.metadata = {**who.metadata, "instead_of": instead}
