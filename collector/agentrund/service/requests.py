"""``do`` frames: writing commands that ask the collector holding the root to work for them."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from agentrund.model.errors import AgentrundError, Rejected
from agentrund.model.event import Json
from agentrund.service import maintenance
from agentrund.service.runs import Runs
from agentrund.service.stream_session import Session

log: Final = logging.getLogger(__name__)


class Requests:
    """Does ``rebuild`` and ``reindex``, one at a time, between the events of the runs."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, session: Session, frame: Json) -> None:
        """Start what a ``do`` frame asks for. Raises Rejected where it cannot be done."""
        what, args = frame.get("what"), frame.get("args") or {}
        if what == "rebuild" and isinstance(args, dict) and isinstance(args.get("run"), str):
            run_ids = [args["run"]]
            if not self._runs.root.has_run(args["run"]):
                raise Rejected("unknown_run", f"no run {args['run'][:64]!r} in this root")
        elif what == "reindex":
            run_ids = self._runs.root.run_ids()
        else:
            raise Rejected("bad_frame", "do takes what: rebuild with args.run, or reindex")
        task = asyncio.get_running_loop().create_task(self._work(session, what, run_ids))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, session: Session, what: str, run_ids: list[str]) -> None:
        try:
            for done, run_id in enumerate(run_ids, start=1):
                self._rebuild(run_id)
                session.reply({"op": "progress", "what": what, "done": done, "total": len(run_ids)})
                await asyncio.sleep(0)
        except (AgentrundError, OSError) as error:
            session.reply({"op": "error", "code": "storage", "message": f"{what}: {error}"})
            return
        except Exception:
            log.exception("%s was not done: a bug of ours", what)
            session.reply(
                {"op": "error", "code": "storage", "message": f"{what}: internal error, see the log"}
            )
            return
        session.reply({"op": "done", "what": what})

    def _rebuild(self, run_id: str) -> None:
        """Make a run's files and row again. A run at hand is finalised by its own actor's path."""
        actor = self._runs.resident(run_id)
        if actor is not None:
            actor.render_logs()
        files = self._runs.root.run(run_id) if actor is None else actor.files
        row = maintenance.rebuild_run(
            files, lambda name, data: self._runs.root.quarantine(run_id, name, data)
        )
        self._runs.index.put(row)
        if actor is None:
            files.close()
