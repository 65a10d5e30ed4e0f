"""Deriving a finished run's files off the loop, one run at a time, in the order they ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from agentrund.finalise.finaliser import finalise
from agentrund.formats.index import Row
from agentrund.model.errors import Damaged, Unavailable
from agentrund.service.chores import Refused
from agentrund.store.run_files import RunFiles

log: Final = logging.getLogger(__name__)

LATE_DELAY_S: Final = 0.5
"""Late events tend to come in bunches: the files are made again once for all of them."""

STOP_S: Final = 3.0
"""A stop may take five seconds in all."""
RETRY_S: Final = 1.0
"""Between two tries while the disk refuses."""

Done = Callable[[str, Row | None], None]
"""Called on the loop with the run's id and its index row, None where there is none to be had."""


class Finalising:
    """One worker thread; a run that changes while its files are made is done once more after that."""

    def __init__(self, done: Done, refused: Refused) -> None:
        self._done = done
        self._refused = refused
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="finalise")
        self._running: dict[str, asyncio.Task[None]] = {}
        self._again: dict[str, RunFiles] = {}
        self._closing = asyncio.Event()

    def __len__(self) -> int:
        return len(self._running)

    def busy(self, run_id: str) -> bool:
        """Whether a run's files are being made."""
        return run_id in self._running

    async def settled(self, run_id: str) -> None:
        """Wait until nothing is being made for a run."""
        while (task := self._running.get(run_id)) is not None:
            await asyncio.wait([task])

    def submit(self, run_id: str, files: RunFiles) -> None:
        """Derive the files of a run soon; after ``close`` that is left to the next start."""
        if run_id in self._running:
            self._again[run_id] = files
            return
        if self._closing.is_set():
            return
        self._running[run_id] = asyncio.get_running_loop().create_task(self._work(run_id, files))

    async def _work(self, run_id: str, files: RunFiles) -> None:
        row = await self._until_done(run_id, files)
        while run_id in self._again:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), LATE_DELAY_S)
            row = await self._until_done(run_id, self._again.pop(run_id))
        del self._running[run_id]
        self._done(run_id, row)

    async def _until_done(self, run_id: str, files: RunFiles) -> Row | None:
        """The row, once the disk takes the files; None where the trace is damaged, or we are leaving."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                # The trace may grow while it is read; what is there now is whole lines.
                return await loop.run_in_executor(self._pool, finalise, files, files.trace.size)
            except FileNotFoundError as error:
                log.error("run %s has no derived files: its folder is gone (%s)", run_id, error)  # noqa: TRY400
                return None
            except Damaged as error:
                log.error("run %s has no derived files: %s (see `agentrund verify`)", run_id, error)  # noqa: TRY400
                return None
            except (OSError, Unavailable) as error:
                self._refused(f"derived files of {run_id}", error)
            except Exception:
                log.exception("run %s has no derived files: a bug of ours", run_id)
                return None
            if self._closing.is_set():
                return None
            await asyncio.sleep(RETRY_S)

    async def close(self) -> bool:
        """Finish what is under way, if it takes no longer than a stop may; whether it was finished.

        What is left behind has a row that says ``running``, and is made at the next start.
        """
        self._closing.set()
        if self._running:
            await asyncio.wait(list(self._running.values()), timeout=STOP_S)
        finished = not self._running
        self._pool.shutdown(wait=finished, cancel_futures=True)
        return finished
