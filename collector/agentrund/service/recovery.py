"""After a start: runs that were open, runs whose files lag behind their trace, sources not yet forgotten.

What the disk refuses at that moment is tried again, for as long as it takes.
"""

from __future__ import annotations

import logging
from typing import Final

from agentrund.model.errors import AgentrundError, RunUnusable, Unavailable
from agentrund.service import maintenance
from agentrund.service.known_sources import REMEMBER_S
from agentrund.service.run_actor import RunActor
from agentrund.service.runs import Runs

log: Final = logging.getLogger(__name__)

_RECENT_MAX: Final = 2000
"""Newest runs looked at for sources that may still have something to say, and for files that lag."""


class Recovery:
    """Brings runs back, once at the start and again for what had to wait."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._waiting: list[str] = []

    def begin(self) -> list[RunActor]:
        """Everything there is; returns the runs with an attempt under way."""
        self._complete_index()
        self._waiting = self._runs.index.running()
        found = self.again()
        self._look_at_recent()
        return found

    def again(self) -> list[RunActor]:
        """What had to wait; returns the runs with an attempt under way that are back now."""
        waiting, self._waiting = self._waiting, []
        found = []
        for run_id in waiting:
            try:
                actor = self._runs.bring_back(run_id)
            except RunUnusable as error:
                self._runs.give_up(run_id, error)
            except (Unavailable, OSError) as error:
                self._runs.trouble.refused(f"run {run_id}", error)
                self._waiting.append(run_id)
            else:
                if actor is not None:
                    found.append(actor)
        return found

    def _complete_index(self) -> None:
        """A run without a row gets one: an index that lost rows must not hide a run that was open."""
        runs = self._runs
        missing = sorted(set(runs.root.run_ids()) - runs.index.run_ids())
        if missing:
            log.warning("%d runs were missing in the index", len(missing))
        for row in maintenance.rows(runs.root, missing):
            try:
                runs.index.put(row)
            except OSError as error:
                runs.trouble.refused(f"index row of {row['run_id']}", error)

    def _look_at_recent(self) -> None:
        since = self._runs.clock.now() - REMEMBER_S
        for run_id in reversed(self._runs.root.run_ids()[-_RECENT_MAX:]):
            if self._runs.resident(run_id) is None:
                try:
                    self._look_at(run_id, since)
                except (OSError, AgentrundError) as error:
                    log.warning("run %s: %s", run_id, error)

    def _look_at(self, run_id: str, since: float) -> None:
        """A run that has ended: its sources, if it was not long ago; its files, if its trace is newer."""
        runs = self._runs
        files = runs.root.apart(run_id)
        try:
            if files.trace.modified >= since:
                sources = files.sources()
                for source in sources:
                    runs.known.add(source, run_id)
                runs.known.ended(run_id, sources, runs.clock.monotonic())
            stale = files.is_stale()
        finally:
            files.close()
        if stale:
            # Stopped between a late event and the files that tell of it.
            runs.derive_again(runs.actor(run_id))
