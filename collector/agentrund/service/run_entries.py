"""What leads to a run and tells of it outside its trace: its row, its metadata, the links that point to it.

All of it follows from the run's state and can be written again at any time; what the disk refuses is a chore.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from agentrund.formats import index as index_rows
from agentrund.formats import layout, meta
from agentrund.model.errors import RunUnusable
from agentrund.model.run_state import CRASHED, RUNNING, RunState
from agentrund.model.source import Arrival
from agentrund.service import maintenance
from agentrund.service.chores import Chores
from agentrund.service.run_actor import RunActor
from agentrund.store.index_file import IndexFile
from agentrund.store.root import Root

log: Final = logging.getLogger(__name__)

ROWS_AT_ONCE: Final = 200


class RunEntries:
    """The entries of all runs of a root. ``open_actor`` gives the actor of an open run that is at hand."""

    def __init__(
        self, root: Root, index: IndexFile, chores: Chores, open_actor: Callable[[str], RunActor | None]
    ) -> None:
        self._root = root
        self._index = index
        self._chores = chores
        self._open_actor = open_actor
        self._grown: dict[str, None] = {}
        self._resumed: set[str] = set()

    # -- beginnings -------------------------------------------------------------------------------

    def begin(self, run_id: str, who: Arrival, started: str) -> None:
        """The row of a run that is about to be made. Raises OSError."""
        self._index.add(index_rows.starting_row(run_id, who.session_id, started, who.metadata))

    def resume(self, state: RunState) -> None:
        """The row of an ended run that is about to go on. Raises OSError."""
        self._index.put(index_rows.running_row(state) | {"status": RUNNING})

    def announce(self, actor: RunActor) -> None:
        """An attempt has just begun.

        A further one is told of with the next ``refresh``: the metadata lists all attempts, and a session may
        have thousands, one right after another.
        """
        actor.files.unsynced.made_above()
        if len(actor.state.attempts) > 1:
            self._resumed.add(actor.run_id)
            self.grown(actor.run_id)
        else:
            self._chores.do(f"metadata of {actor.run_id}", partial(self._announce, actor))
        self._chores.do("latest", partial(self._root.point_latest, actor.run_id))

    def _announce(self, actor: RunActor) -> None:
        # Also of a run that has ended with the same write: its session may be taken up again.
        self._point_session(actor.state)
        if actor.state.is_open:
            actor.files.write(layout.META, meta.encode(actor.state))

    def adopt(self, run_id: str, session_id: str) -> None:
        """A run that began without a session has turned out to have one."""
        self._chores.do(f"session link of {run_id}", partial(self._root.point_session, run_id, session_id))

    # -- while it is open -------------------------------------------------------------------------

    def grown(self, run_id: str) -> None:
        """More has happened than its row says."""
        self._grown[run_id] = None

    def refresh(self, most: int | None = ROWS_AT_ONCE) -> None:
        """Bring what tells of open runs that have grown up to what has happened, ``most`` at a time."""
        for run_id in list(self._grown)[:most]:
            del self._grown[run_id]
            actor, resumed = self._open_actor(run_id), run_id in self._resumed
            self._resumed.discard(run_id)
            if actor is not None and resumed:
                self.restore_soon(actor)
            elif actor is not None:
                row = index_rows.running_row(actor.state)
                self._chores.do(f"row of {run_id}", partial(self._index.put, row))

    def restore(self, actor: RunActor) -> None:
        """Row, metadata and session link of a run that goes on; ``latest`` may be another's by now.

        Raises OSError, Unavailable.
        """
        self._index.put(index_rows.running_row(actor.state))
        actor.files.write(layout.META, meta.encode(actor.state))
        self._point_session(actor.state)

    def restore_soon(self, actor: RunActor) -> None:
        """As ``restore``; what the disk refuses is tried again."""
        self._chores.do(f"row of {actor.run_id}", partial(self.restore, actor))

    def _point_session(self, state: RunState) -> None:
        if state.session_id is not None:
            self._root.point_session(state.run_id, state.session_id)

    # -- ends -------------------------------------------------------------------------------------

    def end(self, run_id: str, row: index_rows.Row) -> None:
        """The row of a run whose derived files are there."""
        self._chores.do(f"index row of {run_id}", partial(self._index.put, row))
        self._index.forget(run_id)

    def give_up(self, run_id: str, why: RunUnusable) -> None:
        """A run that cannot be gone on with is not running any more. Raises OSError."""
        log.error("run %s stays as it is: %s", run_id, why.message)
        for row in maintenance.rows(self._root, [run_id]):
            self._index.put(row | {"status": CRASHED, "last_error": index_rows.fitting(why.message)})
            return
        self.blank(run_id)

    def blank(self, run_id: str) -> None:
        """There is no such run (any more). Raises OSError."""
        self._index.blank(run_id)

    def blank_soon(self, run_id: str) -> None:
        """As ``blank``; what the disk refuses is tried again."""
        self._chores.do(f"index row of {run_id}", partial(self._index.blank, run_id))

    def discard(self, run_id: str) -> None:
        """Take back a run that never got a record. Raises OSError."""
        self._index.blank(run_id)
        self._root.discard(run_id)
