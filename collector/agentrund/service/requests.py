"""``do`` frames: writing commands that ask the collector holding the root to work for them.

Long work runs in a thread or in slices: events, deaths and answers go on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from agentrund.model.errors import AgentrundError, Damaged, Rejected
from agentrund.model.event import Json
from agentrund.service import maintenance
from agentrund.service.runs import Runs

if TYPE_CHECKING:
    from agentrund.service.stream_session import Session

log: Final = logging.getLogger(__name__)


class Requests:
    """Does ``rebuild`` and ``reindex``."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._tasks: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()

    def take(self, session: Session, frame: Json) -> None:
        """Start what a ``do`` frame asks for. Raises Rejected where it cannot be done."""
        what, args = frame.get("what"), frame.get("args") or {}
        run_id = args.get("run") if isinstance(args, dict) else None
        work: Coroutine[None, None, None]
        if what == "rebuild" and isinstance(run_id, str):
            if not self._runs.root.has_run(run_id):
                raise Rejected("unknown_run", f"no run {run_id[:64]!r} in this root")
            work = self._rebuild(run_id)
        elif what == "reindex":
            work = self._reindex(partial(self._progress, session, what))
        else:
            raise Rejected("bad_frame", "do takes what: rebuild with args.run, or reindex")
        task = asyncio.get_running_loop().create_task(self._answered(session, what, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    def _progress(session: Session, what: str, done: int, total: int) -> None:
        session.reply({"op": "progress", "what": what, "done": done, "total": total})

    def mend_index(self) -> None:
        """Bring back the rows of an index that was cut or removed under us, if it was."""
        index = self._runs.index
        if index.harmed:
            index.harmed = False
            task = asyncio.get_running_loop().create_task(self._mended())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _mended(self) -> None:
        try:
            async with self._one_at_a_time:
                await self._reindex(lambda _done, _total: None)
        except (AgentrundError, OSError) as error:
            self._runs.index.harmed = True
            self._runs.trouble.refused("the index", error)
        else:
            log.info("index.jsonl is whole again")

    async def _answered(self, session: Session, what: str, work: Coroutine[None, None, None]) -> None:
        try:
            async with self._one_at_a_time:
                await work
        except Damaged as error:
            session.reply({"op": "error", "code": "storage", "kind": "damaged", "message": str(error)})
        except (AgentrundError, OSError) as error:
            session.reply({"op": "error", "code": "storage", "message": f"{what}: {error}"})
        except Exception:
            log.exception("%s was not done: a bug of ours", what)
            session.reply(
                {"op": "error", "code": "storage", "message": f"{what}: internal error, see the log"}
            )
        else:
            session.reply({"op": "done", "what": what})

    async def _rebuild(self, run_id: str) -> None:
        runs = self._runs
        await runs.loading.settled(run_id)
        actor = runs.resident(run_id)
        if actor is not None:
            await actor.settle_logs()
            runs.derive_again(actor)
            await runs.finalising.settled(run_id)
            return
        with runs.set_apart(run_id), closing(runs.root.apart(run_id)) as files:
            work = partial(maintenance.rebuild_run, files, partial(runs.root.quarantine, run_id))
            row = await asyncio.get_running_loop().run_in_executor(None, work)
        runs.index.put(row)

    async def _reindex(self, progress: maintenance.Progress) -> None:
        loop, index = asyncio.get_running_loop(), self._runs.index

        def tell(done: int, total: int) -> None:
            loop.call_soon_threadsafe(progress, done, total)

        async with self._runs.remaking_index:
            index.hold()
            try:
                await loop.run_in_executor(None, maintenance.rebuild_index, self._runs.root, tell)
            finally:
                index.swap()
