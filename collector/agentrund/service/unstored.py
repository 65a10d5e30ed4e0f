"""What runs told over OTLP were given and their files do not have yet, and the requests it came with.

A run whose file refuses what it is given waits, and no other does; its requests stay in the journal.
"""

from __future__ import annotations

from typing import Final

from agentrund.model.errors import RunUnusable, Unavailable
from agentrund.model.event import Json
from agentrund.sequencer.otlp_commands import Feed
from agentrund.service.run_actor import RunActor
from agentrund.service.runs import Runs

REFUSED_BYTES: Final = 8 << 20
"""Of events that wait for files which refuse them; beyond it everybody waits."""


class Unstored:
    """Between two commits: ``touch`` and ``fed`` say what there is to store, ``done`` which requests end."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._touched: dict[str, RunActor] = {}
        self._refused: dict[str, RunActor] = {}
        self._fed: dict[str, list[Feed]] = {}
        self._owed: dict[str, set[int]] = {}
        """By run the requests that what it was fed came with."""
        self._just_fed: set[str] = set()
        self._settling = False
        self._done: list[int] = []

    @property
    def waiting(self) -> bool:
        """Whether there is something to store; what was refused waits for ``retry``, if there is room."""
        return bool(self._touched or self.is_full or (self._done and not self._refused))

    @property
    def is_full(self) -> bool:
        """Whether so much waits for files that refuse it that nothing may be added."""
        return sum(actor.files.trace.pending_bytes for actor in self._refused.values()) > REFUSED_BYTES

    def touch(self, actor: RunActor) -> None:
        """A run has something, or may have."""
        self._touched[actor.run_id] = actor

    def fed(self, actor: RunActor, command: Feed) -> None:
        """A run is given an event."""
        if self._settling:
            self._just_fed.clear()
            self._settling = False
        self._just_fed.add(actor.run_id)
        self._fed.setdefault(actor.run_id, []).append(command)
        self._owed.setdefault(actor.run_id, set()).update(_requests(command.event.src or {}))

    def done(self, rq: int) -> None:
        """All items of a request were fed: what only filled events of others came just before."""
        self._settling = True
        self._done.append(rq)
        for run_id in self._just_fed & self._owed.keys():
            self._owed[run_id].add(rq)

    def retry(self) -> None:
        """What was refused is stored with the next ``commit``, if it can be."""
        self._touched, self._refused = self._refused | self._touched, {}

    def commit(self) -> None:
        """Store what runs were given, but for those that refused it since the last ``retry``."""
        for run_id, actor in self._touched.items():
            if run_id not in self._refused and not self._is_stored(actor):
                self._refused[run_id] = actor
        self._touched.clear()

    def _is_stored(self, actor: RunActor) -> bool:
        if self._runs.is_lost(actor.run_id):
            return False  # found by somebody else: what it was given is not queued any more
        try:
            self._runs.commit(actor)
        except (Unavailable, RunUnusable):
            return False
        self._fed.pop(actor.run_id, None)
        self._owed.pop(actor.run_id, None)
        return True

    def take_back(self) -> list[Feed] | None:
        """What was fed to runs that are lost now, and not stored; None where none is lost."""
        lost = [run_id for run_id in self._refused | self._touched if self._runs.is_lost(run_id)]
        for run_id in lost:
            self._touched.pop(run_id, None)
            self._refused.pop(run_id, None)
            self._owed.pop(run_id, None)
        return [feed for run_id in lost for feed in self._fed.pop(run_id, [])] if lost else None

    def take_done(self) -> list[int]:
        """The requests of which everything is stored."""
        owed = set[int]().union(*(self._owed.get(run_id, ()) for run_id in self._refused))
        done, self._done = self._done, [rq for rq in self._done if rq in owed]
        return [rq for rq in done if rq not in owed]


def _requests(src: Json) -> set[int]:
    """The requests that an event came with: its own, and those of the records that filled it."""
    found = {src.get("rq"), *(pair[0] for pair in src.get("logs", ()))}
    return {rq for rq in found if isinstance(rq, int)}
