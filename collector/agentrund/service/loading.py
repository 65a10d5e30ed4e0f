"""Long traces replayed in slices between the loop's turns, the shortest first: nobody else waits for one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from agentrund.model.errors import Busy, Damaged, RunUnusable, Unavailable
from agentrund.service.run_actor import RunActor

log: Final = logging.getLogger(__name__)

AT_ONCE: Final = 1 << 18
"""Bytes of a trace that are replayed in one go: about 25 ms."""
UNUSED_S: Final = 10.0
"""A run that was read back is kept this long for whoever asked for it."""


@dataclass(slots=True)
class _Replay:
    actor: RunActor
    slices: Iterator[None]


class Loading:
    """The runs being read back. Whoever wants one of them waits, as for a disk that refuses."""

    def __init__(self, done: Callable[[RunActor], None]) -> None:
        self._done = done
        self._replays: dict[str, _Replay] = {}
        self._failed: dict[str, RunUnusable] = {}
        self._worker: asyncio.Task[None] | None = None

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._replays

    def look(self, run_id: str) -> None:
        """Raises Busy while a run is being read, RunUnusable where that has just failed."""
        if run_id in self._replays:
            raise Busy(f"run {run_id} is being read back", hint="it is long; it takes a moment")
        failed = self._failed.pop(run_id, None)
        if failed is not None:
            raise failed

    def start(self, actor: RunActor, slices: Iterator[None]) -> None:
        """Replay a run from here on, a slice at a turn; ``done`` is called with it in the end."""
        self._replays[actor.run_id] = _Replay(actor, slices)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def settled(self, run_id: str) -> None:
        """Wait until a run is not being read any more."""
        while run_id in self._replays and self._worker is not None:
            await asyncio.wait([self._worker], timeout=0.05)

    async def _work(self) -> None:
        while self._replays:
            self._step(min(self._replays.values(), key=lambda replay: replay.actor.files.trace.size))
            await asyncio.sleep(0)
        self._worker = None

    def _step(self, replay: _Replay) -> None:
        run_id = replay.actor.run_id
        try:
            next(replay.slices)
        except StopIteration:
            del self._replays[run_id]
            self._done(replay.actor)
        except (OSError, Unavailable) as error:
            self._drop(replay)
            log.warning("run %s cannot be read now: %s", run_id, error)
        except Damaged as error:
            self._drop(replay)
            self._failed[run_id] = damaged(run_id, error)
        except Exception:
            self._drop(replay)
            log.exception("run %s cannot be read: a bug of ours", run_id)
            self._failed[run_id] = RunUnusable(f"run {run_id} cannot be read", hint="the log says why")

    def _drop(self, replay: _Replay) -> None:
        del self._replays[replay.actor.run_id]
        replay.actor.files.close()

    async def close(self) -> None:
        """Leave what is not read yet to the next start."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        for replay in list(self._replays.values()):
            self._drop(replay)


def damaged(run_id: str, error: Damaged) -> RunUnusable:
    """What a damaged trace means to whoever wants to go on with its run."""
    return RunUnusable(f"run {run_id} is damaged: {error}", hint=error.hint)
