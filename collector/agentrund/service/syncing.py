"""When what was written is on stable storage, and what may be said before it is.

Syncs run off the loop in rounds, one round at a time: what is written while a round runs is in the next.
The two policies, the values of the setting ``sync``, differ in what an acknowledgement waits for:
``Interval`` for the write, ``Always`` for the sync.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from agentrund.model.errors import Unavailable
from agentrund.store.folder import Folder, SyncFailedError, sync_file_system
from agentrund.store.unsynced import FolderGoneError, Held, Unsynced, reason

log: Final = logging.getLogger(__name__)

SYNCS_AT_ONCE: Final = 8
"""Files synced side by side share the file system's commits: 64 of them took a third less."""
ROOM_S: Final = 10.0
"""Who has time waits this long for the disk; then it is told as what it is, one that does not keep up."""
DRAIN_S: Final = 1.0
"""A stop waits this long for the last acknowledgements."""

Done = Callable[[], None]
Failed = Callable[[str], None]
"""Called with the reason."""


@dataclass(slots=True)
class _Waiter:
    """Somebody who waits for the first ``end`` bytes; ``stays`` when told of a failure."""

    end: int
    done: Done
    failed: Failed
    stays: bool


class Syncing(ABC):
    """The rounds. ``on_failure`` is told, on the loop, what failed to be synced and why."""

    def __init__(self) -> None:
        self.on_failure: Callable[[Unsynced, str], None] = lambda _unsynced, _reason: None
        self._pool = ThreadPoolExecutor(SYNCS_AT_ONCE, thread_name_prefix="sync")
        self._later: dict[str, Unsynced] = {}
        self._asked: dict[str, Unsynced] = {}
        self._running: dict[str, Unsynced] = {}
        self._waiters: dict[str, list[_Waiter]] = {}
        self._rounds: asyncio.Task[None] | None = None

    def flush(self, unsynced: Unsynced, done: Done, failed: Failed) -> None:
        """Call ``done`` once what was written so far is on stable storage, or ``failed``."""
        if unsynced.suspect is not None:
            failed(_told(unsynced.suspect))  # its turn comes with the beat
        elif self._wait(unsynced, done, failed, stays=False):
            self._ask(unsynced)

    def when_durable(self, unsynced: Unsynced, done: Done, failed: Failed = lambda _reason: None) -> None:
        """As ``flush``, but no round is asked for, and it waits on after a failure."""
        self._wait(unsynced, done, failed, stays=True)

    def when_all_durable(self, done: Done) -> None:
        """Call ``done`` once everything that was written so far, by whomever, is on stable storage."""
        waiting = {**self._running, **self._asked, **self._later}.values()
        left = len(waiting)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                done()

        for unsynced in list(waiting):
            self.when_durable(unsynced, one_done)
        if not waiting:
            done()

    @abstractmethod
    async def begin(self, folder: Folder) -> None:
        """Before anything is acknowledged: what an earlier collector had written below ``folder``."""

    @abstractmethod
    def wrote(self, unsynced: Unsynced) -> None:
        """Something was written."""

    @abstractmethod
    def when_kept(self, unsynced: Unsynced, done: Done, failed: Failed, /) -> None:
        """Call ``done`` once what was written so far may be acknowledged, ``failed`` when a sync fails."""

    @abstractmethod
    def when_all_kept(self, done: Done) -> None:
        """Call ``done`` once everything written so far, by whomever, is as safe as an ack promises."""

    @abstractmethod
    async def kept(self, unsynced: Unsynced) -> None:
        """Wait until what was written so far may be acknowledged. Raises Unavailable where it fails."""

    # -- the rounds -----------------------------------------------------------------------------------

    def forget(self, unsynced: Unsynced) -> None:
        """What was written is lost: there is nothing to sync, nor to wait for."""
        unsynced.gone()
        self._asked.pop(unsynced.key, None)
        self._later.pop(unsynced.key, None)
        self._tell(unsynced)

    def beat(self) -> None:
        """Sync what was left for later: what was written, in ``Interval``, and what failed."""
        later, self._later = self._later, {}
        for unsynced in later.values():
            self._ask(unsynced)

    async def room(self, held: Held) -> None:
        """Wait where so much is held that nothing more would be taken, as long as the disk is at it."""
        if held.full:
            self.beat()
            if self._rounds is not None:
                await asyncio.wait([self._rounds], timeout=ROOM_S)

    async def drain(self) -> None:
        """Sync what was written so far, as far as the disk can within a second."""
        self.beat()
        if self._rounds is not None:
            await asyncio.wait([self._rounds], timeout=DRAIN_S)

    async def close(self) -> None:
        """Sync everything, as far as the disk takes it."""
        self.beat()
        if self._rounds is not None:
            await self._rounds
        self._pool.shutdown()

    def _wait(self, unsynced: Unsynced, done: Done, failed: Failed, *, stays: bool) -> bool:
        """Whether there is something to wait for."""
        if unsynced.settled:
            done()
            return False
        waiters = self._waiters.setdefault(unsynced.key, [])
        waiters.append(_Waiter(unsynced.written, done, failed, stays))
        return True

    def _ask(self, unsynced: Unsynced) -> None:
        self._asked[unsynced.key] = unsynced
        if self._rounds is None:
            self._rounds = asyncio.get_running_loop().create_task(self._run_rounds())

    async def _run_rounds(self) -> None:
        while self._asked:
            self._running, self._asked = self._asked, {}
            for key in self._running:
                self._later.pop(key, None)
            syncs = (self._sync(unsynced) for unsynced in self._running.values())
            for bug in await asyncio.gather(*syncs, return_exceptions=True):
                if bug is not None:
                    log.error("who waited for a sync met a bug of ours", exc_info=bug)
        self._running, self._rounds = {}, None

    async def _sync(self, unsynced: Unsynced) -> None:
        batch = unsynced.take()
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, unsynced.sync, batch)
        except FolderGoneError as error:
            unsynced.gone()
            self.on_failure(unsynced, reason(error))
            self._tell(unsynced)
        except Exception as error:
            if not isinstance(error, OSError | Unavailable):
                log.exception("a sync of %s met a bug of ours", unsynced.key)
            unsynced.failed(batch, error)
            if unsynced.pending:
                self._later[unsynced.key] = unsynced
            self.on_failure(unsynced, reason(error))
            self._tell_failed(unsynced, _told(reason(error)))
        else:
            unsynced.succeeded(batch)
            self._tell(unsynced)

    def _tell(self, unsynced: Unsynced) -> None:
        waiters = self._waiters.pop(unsynced.key, [])
        later = [waiter for waiter in waiters if waiter.end > unsynced.durable]
        if later:
            self._waiters[unsynced.key] = later
        for waiter in waiters:
            if waiter.end <= unsynced.durable:
                waiter.done()

    def _tell_failed(self, unsynced: Unsynced, why: str) -> None:
        waiters = self._waiters.pop(unsynced.key, [])
        if staying := [waiter for waiter in waiters if waiter.stays]:
            self._waiters[unsynced.key] = staying
        for waiter in waiters:
            waiter.failed(why)


def _told(why: str) -> str:
    return f"not on stable storage: {why}"


class Interval(Syncing):
    """Acknowledged when it is written; the beat syncs it."""

    async def begin(self, folder: Folder) -> None:
        """What an earlier collector acknowledged had only to be written."""

    def wrote(self, unsynced: Unsynced) -> None:
        """Something was written."""
        self._later[unsynced.key] = unsynced
        if unsynced.together.size > unsynced.together.enough:
            self.beat()

    def when_kept(self, _unsynced: Unsynced, done: Done, _failed: Failed, /) -> None:
        """It may be, now."""
        done()

    def when_all_kept(self, done: Done) -> None:
        """It is, now."""
        done()

    async def kept(self, unsynced: Unsynced) -> None:
        """It may be, now."""


class Always(Syncing):
    """Acknowledged when it is on stable storage; each write asks for a round."""

    async def begin(self, folder: Folder) -> None:
        """What an earlier collector had written counts as kept from here on."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, sync_file_system, folder)
        except SyncFailedError as error:
            log.error("%s: what was written before this start may not be kept: %s", folder.path, error)  # noqa: TRY400

    def wrote(self, unsynced: Unsynced) -> None:
        """Something was written."""
        if unsynced.suspect is None:
            self._ask(unsynced)

    def when_kept(self, unsynced: Unsynced, done: Done, failed: Failed, /) -> None:
        """It may be after the round that ``wrote`` has asked for."""
        self.when_durable(unsynced, done, failed)

    def when_all_kept(self, done: Done) -> None:
        """It is after the round that is asked for."""
        self.when_all_durable(done)

    async def kept(self, unsynced: Unsynced) -> None:
        """It may be after the next round. Raises Unavailable."""
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flush(unsynced, partial(kept.set_result, None), lambda why: kept.set_exception(Unavailable(why)))
        await kept


POLICIES: Final[Mapping[str, type[Interval | Always]]] = {"interval": Interval, "always": Always}
"""By the value of the setting ``sync``."""
