"""Before the doors open: the runs that were open come back, and who may return to one that has just ended.

The cost goes with what was open and what ended within the hour, not with how many runs there are; all
that is left to ``survey``. What the disk refuses at that moment is tried again, for as long as it takes.
"""

from __future__ import annotations

import logging
from contextlib import closing, suppress
from typing import Final

from agentrund.model.errors import AgentrundError, RunUnusable, Unavailable
from agentrund.service.known_sources import REMEMBER_S
from agentrund.service.loading import AT_ONCE
from agentrund.service.run_actor import RunActor
from agentrund.service.runs import Runs

log: Final = logging.getLogger(__name__)

RECENT_MAX: Final = 2000
"""Newest runs looked at for sources that may still have something to say, and for files that lag."""
_OPEN_BYTES: Final = 1 << 22
"""Traces of open runs that are replayed before the doors open: about 0.4 s. The others come after it."""
_ENDED_BYTES: Final = 1 << 26
"""Traces of ended runs that are searched for sources before the doors open: about 0.2 s."""


class Recovery:
    """Brings runs back, once at the start and again for what had to wait."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._waiting: list[str] = []

    def begin(self) -> list[RunActor]:
        """What was open and what has just ended; returns the runs with an attempt under way."""
        self._waiting = self._runs.index.running()
        found = self.again(_OPEN_BYTES)
        self._look_at_recent()
        return found

    def add(self, run_id: str) -> None:
        """A run without a row was open."""
        self._waiting.append(run_id)

    @property
    def waiting(self) -> list[str]:
        """Runs that were open and are not back yet."""
        return list(self._waiting)

    @property
    def reading(self) -> bool:
        """Whether the trace of a run that was open is still being read."""
        return any(run_id in self._runs.loading for run_id in self._waiting)

    def again(self, most: int = AT_ONCE) -> list[RunActor]:
        """What had to wait; returns the runs with an attempt under way that are back now.

        ``most`` bytes of traces are replayed in this call; what is longer is read between the loop's turns.
        """
        waiting, self._waiting = self._waiting, []
        found = []
        for run_id in waiting:
            if run_id in self._runs.loading:
                self._waiting.append(run_id)
                continue
            actor = self._bring_back(run_id, most)
            if actor is not None:
                most -= actor.files.trace.size
                found.append(actor)
        return found

    def _bring_back(self, run_id: str, most: int) -> RunActor | None:
        try:
            return self._runs.bring_back(run_id, most)
        except RunUnusable as error:
            self._runs.entries.give_up(run_id, error)
        except (Unavailable, OSError) as error:
            if run_id in self._runs.loading:
                log.info("%s", error)
            else:
                self._runs.trouble.refused(f"run {run_id}", error)
            self._waiting.append(run_id)
            with suppress(OSError, AgentrundError), closing(self._runs.root.apart(run_id)) as files:
                # Whoever comes back before it does is sent to it, and waits.
                for source in files.sources():
                    self._runs.known.add(source, run_id)
        return None

    def _look_at_recent(self) -> None:
        since, room = self._runs.clock.now() - REMEMBER_S, _ENDED_BYTES
        for run_id in reversed(self._runs.index.newest()[-RECENT_MAX:]):
            if room < 0:
                return
            try:
                if self._runs.resident(run_id) is None and self._runs.root.written_at(run_id) >= since:
                    with closing(self._runs.root.apart(run_id)) as files:
                        self._runs.known.remember(run_id, files.sources(), self._runs.clock.monotonic())
                        room -= files.trace.size
            except (OSError, AgentrundError) as error:
                log.debug("run %s: %s", run_id, error)  # the survey says it
