"""After a start, before the journal is worked off: what the runs' folders hold of it already.

Runs that were open go on where they stopped. Runs that have ended may hold a part of a request whose other
part was still held back when the collector was killed: only where the journal has such a request, those
written since it came are searched for it, in a thread, and the ones that have it are read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain
from typing import Final, TypeVar

from agentrund.model.errors import AgentrundError
from agentrund.model.event import Record
from agentrund.model.source import DOOR_OTLP
from agentrund.sequencer.otlp_commands import RunKey
from agentrund.sequencer.otlp_restore import RestoredRun
from agentrund.sequencer.otlp_runs import OtlpRuns
from agentrund.sequencer.otlp_stored import StoredItems
from agentrund.service.otlp_runner import OtlpRunner
from agentrund.service.run_actor import RunActor
from agentrund.service.runs import Runs
from agentrund.store.metric_files import StrayMetrics

_T = TypeVar("_T")

log: Final = logging.getLogger(__name__)

_SLICE_S: Final = 0.01
"""Records are read for so long between two turns of the loop."""
_MARGIN_S: Final = 60.0
"""A request's number is its time of arrival by the wall clock, which may have been set since."""


class OtlpReplay:
    """``rqs`` are the requests that the journal had when it was opened."""

    def __init__(
        self,
        runs: Runs,
        machine: OtlpRuns,
        runner: OtlpRunner,
        rqs: Collection[int],
        stray: StrayMetrics,
    ) -> None:
        self._runs = runs
        self._machine = machine
        self._runner = runner
        self._stray = stray
        self._rqs = frozenset(rqs)
        self._open: list[RunActor] = []
        self._missing: frozenset[str] = frozenset()
        self._stopping = False
        machine.stored = StoredItems(rqs)

    def add(self, recovered: Iterable[RunActor]) -> None:
        """Runs that are open again."""
        self._open += [
            actor
            for actor in recovered
            if any(source.door == DOOR_OTLP for source in actor.state.sources.values())
        ]

    def without(self, missing: Iterable[str]) -> None:
        """These runs are open too, and cannot be read now: they have not ended."""
        self._missing = frozenset(missing)

    def stop(self) -> None:
        """The search ends at the next run."""
        self._stopping = True

    async def run(self) -> None:
        """Bring back what is there to be brought back; at once where there is nothing."""
        while self._open:
            actor = self._open.pop(0)
            with _said(actor.run_id):
                await self._bring_back(actor)
        if self._rqs:
            rqs, self._rqs = self._rqs, frozenset()
            with _said("metrics of no run"):
                await self._note_measured(self._stray.origins())
            with _said("the runs that have ended"):
                for run_id in await asyncio.to_thread(self._holders, rqs):
                    with _said(run_id):
                        await self._recall(run_id)

    async def _bring_back(self, actor: RunActor) -> None:
        """A run that was open; a sender over the socket may have ended it since."""
        ended = not actor.state.is_open
        key = await self._restore(actor.files.records(actor.files.trace.size), ended=ended)
        if self._machine.stored:
            await self._note_measured(actor.files.measured())
        if key is not None:
            self._runner.restore(key, actor)

    async def _recall(self, run_id: str) -> None:
        """A run that has ended."""
        actor = self._runs.resident(run_id)
        if run_id in self._missing or (actor is not None and actor.state.is_open):
            return
        with closing(self._runs.root.apart(run_id)) as files:
            key = await self._restore(files.records(files.trace.whole_lines()), ended=True)
            await self._note_measured(files.measured())
        if key is not None:
            self._runner.recall(key, run_id)

    async def _restore(self, records: Iterable[Record], *, ended: bool) -> RunKey | None:
        restored = RestoredRun(self._machine, self._runs.clock.monotonic())
        await self._in_slices(restored.take, records)
        return restored.finish(ended=ended)

    async def _note_measured(self, origins: Iterable[tuple[int, int]]) -> None:
        """Items of which a line of metrics tells are stored."""
        note = self._machine.stored.note
        await self._in_slices(lambda origin: note({"rq": origin[0], "i": origin[1]}), origins)

    async def _in_slices(self, take: Callable[[_T], None], found: Iterable[_T]) -> None:
        clock = self._runs.clock
        until = clock.monotonic() + _SLICE_S
        for one in found:
            take(one)
            if clock.monotonic() >= until:
                await asyncio.sleep(0)
                until = clock.monotonic() + _SLICE_S

    # -- in the thread ----------------------------------------------------------------------------

    def _holders(self, rqs: frozenset[int]) -> list[str]:
        """The runs with records that came of ``rqs``, the newest first."""
        since = min(rqs) / 1000 - _MARGIN_S
        return [run_id for run_id in reversed(self._runs.root.run_ids()) if self._holds(run_id, rqs, since)]

    def _holds(self, run_id: str, rqs: frozenset[int], since: float) -> bool:
        root = self._runs.root
        try:
            if self._stopping or root.written_at(run_id) < since:
                return False
            with closing(root.apart(run_id)) as files:
                for rq in chain(files.requests(), (rq for rq, _ in files.measured())):
                    if self._stopping or rq in rqs:
                        return not self._stopping
        except (OSError, AgentrundError) as error:
            log.debug("run %s: %s", run_id, error)  # the survey says it
        return False


@contextmanager
def _said(what: str) -> Iterator[None]:
    """What cannot be read costs nobody else: its part of the journal is told again."""
    try:
        yield
    except (OSError, AgentrundError) as error:
        log.warning("%s: what is stored of the intake journal cannot be looked up: %s", what, error)
    except Exception:
        log.exception("%s: what is stored of the intake journal cannot be looked up: a bug of ours", what)
