"""Forcing data to the disk, off the loop and in order: at most a second late, or when a client flushes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from agentrund.model.errors import Unavailable
from agentrund.store.folder import SyncFailedError
from agentrund.store.run_files import RunFiles

log: Final = logging.getLogger(__name__)


class Syncing:
    """One worker thread: a flush waits for every sync that was asked for before it."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="sync")
        self._tasks: set[asyncio.Task[None]] = set()
        self._again: dict[str, RunFiles] = {}

    def flush(self, files: RunFiles, done: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Sync a run, then call ``done``, or ``failed`` with the reason."""
        self._start(self._flush(files, done, failed))

    def sync(self, runs: Iterable[RunFiles]) -> None:
        """Sync what the runs have written since the last time."""
        again, self._again = self._again, {}
        for files in [*again.values(), *runs]:
            if files.unsynced:
                self._start(self._flush(files, _nothing, _only_logged))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def sync_journal(self, fd: int | None) -> None:
        """Sync the intake journal after the traces that were asked for before; takes ``fd`` over."""
        if fd is not None:
            self._start(self._sync_journal(fd))

    async def _sync_journal(self, fd: int) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, os.fdatasync, fd)
        except OSError as error:
            log.error("the intake journal is not on stable storage: %s", error.strerror)  # noqa: TRY400
        finally:
            os.close(fd)

    async def _flush(self, files: RunFiles, done: Callable[[], None], failed: Callable[[str], None]) -> None:
        names = files.take_unsynced()
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, files.sync, names)
        except SyncFailedError as error:
            # The kernel may have dropped the pages: a second "ok" would prove nothing.
            files.sync_failed = error.strerror or str(error)
            log.error("run %s: sync failed: %s", files.run_id, files.sync_failed)  # noqa: TRY400
        except (OSError, Unavailable) as error:
            # Nothing failed to be synced, it could not be asked for: the next round does.
            files.put_back(names)
            self._again[files.run_id] = files
            failed(f"not on stable storage: {error}")
            return
        if files.sync_failed is None:
            done()
        else:
            failed(f"not on stable storage: {files.sync_failed}")

    async def close(self) -> None:
        """Finish what is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._pool.shutdown()


def _nothing() -> None:
    """The interval's sync has nobody to tell."""


def _only_logged(_reason: str) -> None:
    """The interval's sync has nobody to tell."""
