"""After the doors have opened: everything that is in the root is looked at once, a little at a time.

Runs without a row, rows that cannot be read, files older than their trace, sources that may still have
something to say. Reading is done in a thread, deciding and storing on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any, Final, TypeVar

from agentrund.formats import index as index_rows
from agentrund.model.errors import AgentrundError, Unavailable
from agentrund.model.run_state import RUNNING
from agentrund.service import maintenance
from agentrund.service.known_sources import REMEMBER_S
from agentrund.service.recovery import RECENT_MAX, Recovery
from agentrund.service.run_actor import RunActor
from agentrund.service.runs import Runs
from agentrund.store import index_file
from agentrund.store.index_file import Contents
from agentrund.store.root import Root

log: Final = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_S: Final = 5.0
STOP_S: Final = 2.0
"""A stop may take five seconds in all."""


class Survey:
    """One look at the whole root, after a start."""

    def __init__(self, runs: Runs, recovery: Recovery) -> None:
        self._runs = runs
        self._root = runs.root
        self._recovery = recovery
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="survey")
        self._reading: asyncio.Future[Any] | None = None
        self.rows_seen = False
        """Whether every run that was open has been found, also where the index did not tell of it."""

    async def run(self) -> None:
        """Look at everything, again where the disk refuses."""
        while True:
            try:
                run_ids = await self._apart(self._root.run_ids)
                if run_ids:
                    self._runs.ids.come_after(run_ids[-1])
                await self._look_at_rows(run_ids)
                self.rows_seen = True
                await self._look_at_files(run_ids)
            except (OSError, AgentrundError) as error:
                self.rows_seen = True  # nobody waits for a disk that may never come back
                log.warning("the look at the whole root has to wait: %s", error)
                await asyncio.sleep(RETRY_S)
            except Exception:
                self.rows_seen = True
                log.exception("the look at the whole root met a bug of ours")
                return
            else:
                return

    async def close(self) -> bool:
        """Wait for the thread, if it takes no longer than a stop may; whether it has come to its end."""
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=STOP_S)
        idle = self._reading is None or self._reading.done()
        self._pool.shutdown(wait=idle, cancel_futures=True)
        return idle

    async def _apart(self, work: Callable[..., T], *args: object) -> T:
        """Do ``work`` in the thread."""
        future = asyncio.get_running_loop().run_in_executor(self._pool, work, *args)
        self._reading = future
        # Shielded: a stop ends the waiting, and `close` has to know when the thread has let go of the files.
        return await asyncio.shield(future)

    # -- the index --------------------------------------------------------------------------------

    async def _look_at_rows(self, run_ids: list[str]) -> None:
        contents = await self._apart(index_file.look, self._root.folder)
        if contents.damage is None and contents.slots.keys() >= set(run_ids):
            return
        index = self._runs.index
        async with self._runs.remaking_index:
            index.hold()
            try:
                contents = await self._apart(index_file.look, self._root.folder)
                await self._complete(contents, run_ids)
            finally:
                index.swap()

    async def _complete(self, contents: Contents, run_ids: list[str]) -> None:
        """A run without a row gets one: an index that lost rows must not hide a run that was open."""
        missing = [run_id for run_id in run_ids if run_id not in contents.slots]
        if contents.damage is not None:
            log.warning("the index is damaged (%s): making it whole from the traces", contents.damage)
        if missing:
            log.warning("%d runs were missing in the index", len(missing))
        made: dict[str, bytes] = {}
        # The newest first: those are the ones that may be open.
        for run_id in reversed(missing):
            for row in await self._apart(_row, self._root, run_id):
                made[run_id] = index_rows.encode_row(row, index_rows.slot_size(row))
                if row["status"] == RUNNING:
                    self._recovery.add(run_id)
        if made or contents.damage is not None:
            await self._apart(index_file.complete, self._root.folder, contents, made)

    # -- files and sources ------------------------------------------------------------------------

    async def _look_at_files(self, run_ids: list[str]) -> None:
        since = self._runs.clock.now() - REMEMBER_S
        for run_id in reversed(run_ids[-RECENT_MAX:]):
            if self._runs.resident(run_id) is not None:
                continue
            try:
                sources, stale = await self._apart(_look_at, self._root, run_id, since)
                if sources and self._runs.resident(run_id) is None:
                    self._runs.known.remember(run_id, sources, self._runs.clock.monotonic())
                if stale:
                    # Stopped between a late event and the files that tell of it.
                    self._runs.derive_again(await self._actor(run_id))
                    await self._runs.finalising.settled(run_id)
            except (OSError, AgentrundError) as error:
                log.warning("run %s: %s", run_id, error)

    async def _actor(self, run_id: str) -> RunActor:
        """The actor of a run, however long its trace is. Raises RunUnusable, Unavailable."""
        with suppress(Unavailable):
            return self._runs.actor(run_id)
        await self._runs.loading.settled(run_id)
        return self._runs.actor(run_id)


def _row(root: Root, run_id: str) -> list[index_rows.Row]:
    return list(maintenance.rows(root, [run_id]))


def _look_at(root: Root, run_id: str, since: float) -> tuple[list[str], bool]:
    """A run that has ended: its sources, if it was not long ago; whether its files lag behind its trace."""
    with closing(root.apart(run_id)) as files:
        return files.sources() if files.trace.modified >= since else [], files.is_stale()
