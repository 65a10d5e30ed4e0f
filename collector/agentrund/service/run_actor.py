"""One run at work: the machine decides, the files follow, the transcript comes right after.

Order per read of a sender: payloads are made fit to store, numbered, queued as trace lines, written with
one call, acknowledged; agent.logs is rendered in short batches after that.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from agentrund.formats import trace_jsonl
from agentrund.formats.agent_logs import LogRenderer
from agentrund.formats.spill import spill
from agentrund.model.errors import Damaged, RunUnusable, Unavailable
from agentrund.model.event import Event, Json, Record
from agentrund.model.run_state import Change, RunState
from agentrund.model.source import Arrival
from agentrund.sequencer.run import RunMachine, Step
from agentrund.service.clock import Clock
from agentrund.store.append_file import Quarantine
from agentrund.store.run_files import RunFiles

log: Final = logging.getLogger(__name__)

LOG_DELAY_S: Final = 0.02
"""agent.logs may lag by 200 ms; a tenth of that leaves room on a loaded machine."""
LOG_BATCH: Final = 200
"""Records rendered at once at most, so that nobody else waits longer than about 2 ms."""
UNRENDERED_MAX: Final = 20_000
"""Records that may wait for that; who writes faster than we render pays for it with its own time."""
_SETTLE_BYTES: Final = 1 << 16
_NOTE_EVERY_S: Final = 60.0
_SYNC_FAILED: Final = "the disk failed to keep what was written; it was written again before going on"


def rendered(
    files: RunFiles, state: RunState, renderer: LogRenderer, limit: int | None = None
) -> Iterator[bytes]:
    """The transcript of the first ``limit`` bytes of a trace, in pieces; folds the records into ``state``."""
    batch: list[bytes] = []
    size = 0
    for record in files.records(limit):
        piece = renderer.render(record, state.apply(record), state)
        batch.append(piece)
        size += len(piece)
        if size >= _SETTLE_BYTES:
            yield b"".join(batch)
            batch, size = [], 0
    yield b"".join(batch)


class RunObserver(Protocol):
    """Who is told what happened to a run once it is in the file."""

    def run_changed(self, actor: RunActor, change: str) -> None:
        """An attempt was opened, ended or crashed, or a late event came."""

    def run_lost(self, actor: RunActor, why: RunUnusable) -> None:
        """Its folder or trace was removed or changed by somebody else: nothing more can be written."""

    def logs_lag(self, actor: RunActor, error: Exception) -> None:
        """The transcript could not be written: ``render_logs`` is to be tried again."""


class RunActor:
    """The single writer of one run."""

    def __init__(
        self, files: RunFiles, state: RunState, clock: Clock, blob_max_bytes: int, observer: RunObserver
    ) -> None:
        self.files = files
        self.machine = RunMachine(state, clock.iso)
        self._clock = clock
        self._blob_max = blob_max_bytes
        self._observer = observer
        self._renderer = LogRenderer()
        self._queued: list[Step] = []
        self._unrendered: list[Step] = []
        self._changes: list[str] = []
        self._logs_due: asyncio.TimerHandle | None = None
        self._settling = False
        self._logs_lost = False
        self._remaking: asyncio.Task[None] | None = None
        self._heard_at: float | None = None
        self._sync_failed_at: float | None = None

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.files.run_id

    @property
    def state(self) -> RunState:
        """What the run's records say."""
        return self.machine.state

    @property
    def quiet_s(self) -> float:
        """Seconds since its last record or heartbeat; after a restart by the time of its last record."""
        if self._heard_at is not None:
            return self._clock.monotonic() - self._heard_at
        attempt = self.state.attempt
        return 0.0 if attempt is None else max(0.0, self._clock.now() - attempt.last_ts)

    @property
    def queued(self) -> bool:
        """Whether records wait for a commit."""
        return bool(self._queued)

    def heard(self) -> None:
        """One of its sources has given a sign of life."""
        self._heard_at = self._clock.monotonic()

    # -- coming back ------------------------------------------------------------------------------

    def recover(self, quarantine: Quarantine) -> Iterator[None]:
        """Replay the trace into this (fresh) actor, after cutting a torn tail; complete agent.logs.

        A generator: one slice of about 20 ms at each step. Raises Damaged where the trace holds
        something else than records.
        """
        self.files.repair_metrics(quarantine)
        torn = self.files.repair(quarantine)
        if torn:
            log.warning("run %s: %d bytes of a torn line moved to quarantine", self.run_id, torn)
        if self.files.trace.size:  # else a transcript that is there is all there is
            yield from self.files.settle_logs(rendered(self.files, self.state, self._renderer))

    async def settle_logs(self) -> None:
        """Make agent.logs again from the trace, a piece at a time; what comes meanwhile is appended after.

        Raises OSError, Unavailable, Damaged.
        """
        self._settling = True
        try:
            for step in self._unrendered:  # in the trace already, so made again with the rest
                self._renderer.render(step.record, step.change, self.state)
            self._unrendered.clear()
            again = rendered(self.files, RunState(self.run_id), LogRenderer(), self.files.trace.size)
            for _ in self.files.settle_logs(again):
                await asyncio.sleep(0)
        finally:
            self._settling = False
            self.render_logs()

    # -- inputs -----------------------------------------------------------------------------------

    def arrive(self, who: Arrival) -> None:
        """A source takes its place. Raises Unavailable where its metadata cannot be stored."""
        who.metadata = self._fit(who.metadata)
        self._perform(self.machine.arrive(who, self._clock.now()))

    def feed(self, source: str, event: Event) -> None:
        """An event of a source. Raises, with nothing changed, where a blob cannot be stored.

        Unavailable where the disk refuses, RunUnusable where the run's folder is gone.
        """
        raw = event.raw
        # A string is never longer than the JSON it came in: most payloads need no look inside.
        if raw is None or len(raw) > self._blob_max:
            payload = self._fit(event.payload)
            if payload != event.payload:
                # A copy: should this run be lost, the event as it came goes into another.
                event = dataclasses.replace(event, payload=payload, raw=None)
        self._perform(self.machine.feed(source, event, self._clock.now()))

    def refuse(self, source: str, code: str, message: str, n: int | None) -> None:
        """A frame of a source was refused."""
        self._perform(self.machine.refuse(source, code, message, n, self._clock.now()))

    def lost(self, source: str, last: int) -> None:
        """A source's events up to ``last`` will never come."""
        self._perform(self.machine.lost(source, last, self._clock.now()))

    def sync_failed(self, why: str) -> None:
        """A sync of the run has failed: said once in the run, when its disk takes something again."""
        now = self._clock.monotonic()
        if self._sync_failed_at is None or now - self._sync_failed_at >= _NOTE_EVERY_S:
            self._sync_failed_at = now
            self._perform(self.machine.note(_SYNC_FAILED, self._clock.now(), sync_failed=why))

    def request_rejected(self, why: str) -> None:
        """A whole request of one of its processes was rejected."""
        what = f"an OTLP request was rejected: {why}"
        self._perform(self.machine.note(what, self._clock.now(), refused="otlp_request"))

    def leave(
        self,
        source: str,
        cause: str,
        *,
        ts: float | None = None,
        extra_open: Iterable[Json] = (),
        linger: bool = False,
    ) -> None:
        """A source ends, at ``ts`` or now."""
        when = self._clock.now() if ts is None else ts
        self._perform(self.machine.leave(source, cause, when, extra_open=extra_open, linger=linger))

    def finish(self, status: str | None, cause: str, ts: float | None = None) -> None:
        """The collector ends the run."""
        self._perform(self.machine.finish(status, cause, ts if ts is not None else self._clock.now()))

    def _fit(self, payload: Json) -> Json:
        """A payload as it may reach the disk: long strings in blobs. Redaction belongs before this line."""
        try:
            return spill(payload, self._blob_max, self.files.blobs.put)
        except FileNotFoundError as error:
            gone = RunUnusable(f"run {self.run_id} is gone", hint="its folder was removed")
            self._observer.run_lost(self, gone)
            raise gone from error
        except OSError as error:
            raise Unavailable(
                f"cannot write a blob of {self.run_id}: {error.strerror}",
                hint="free space or repair the disk",
            ) from error

    # -- effects ----------------------------------------------------------------------------------

    def _perform(self, steps: list[Step]) -> None:
        for step in steps:
            self.files.trace.add(self._line(step.record))
            self._queued.append(step)
            if step.change is not None:
                self._changes.append(step.change)

    def _line(self, record: Record) -> bytes:
        try:
            return trace_jsonl.encode(record)
        except Exception:
            # It has its number already: a hole in the numbers would be worse than a record without content.
            log.exception("run %s: #%d cannot be encoded: a bug of ours", self.run_id, record.seq)
            record.payload, record.raw, record.src = {"lost_payload": "it could not be encoded"}, None, None
            return trace_jsonl.encode(record)

    def commit(self) -> None:
        """Write what is queued; what is acknowledged after this survives us.

        Raises Unavailable, or RunUnusable where the trace was removed or changed by somebody else.
        """
        try:
            self.files.commit()
        except RunUnusable as error:
            self._observer.run_lost(self, error)
            raise
        if self._queued:
            self.heard()
        self._unrendered += self._queued
        self._queued.clear()
        if self._changes:
            self._announce()
        if self._unrendered and self._logs_due is None:
            self._logs_due = asyncio.get_running_loop().call_later(LOG_DELAY_S, self._render_due)
        if len(self._unrendered) > UNRENDERED_MAX:
            self._render(UNRENDERED_MAX)

    def _announce(self) -> None:
        changes, self._changes = self._changes, []
        if Change.ENDED in changes or Change.CRASHED in changes:
            self.render_logs()
        for change in changes:
            self._observer.run_changed(self, change)

    def _render_due(self) -> None:
        self._logs_due = None
        self._render(LOG_BATCH)
        if self._unrendered and not self._settling:
            self._logs_due = asyncio.get_running_loop().call_later(0, self._render_due)

    def render_logs(self) -> bool:
        """Bring agent.logs up to the trace; False where that has to wait."""
        return self._render(len(self._unrendered))

    def _render(self, count: int) -> bool:
        if self._settling:
            return False
        if self._logs_lost:
            return self._remake_logs()
        steps, self._unrendered = self._unrendered[:count], self._unrendered[count:]
        render, state = self._renderer.render, self.state
        logs = self.files.logs
        for step in steps:
            logs.add(render(step.record, step.change, state))
        try:
            logs.commit()
        except Unavailable as error:
            # The trace has it all; what is queued goes out at the next try.
            self._observer.logs_lag(self, error)
            return False
        except RunUnusable as error:
            log.warning("%s; it is made again from the trace", error.message)
            return self._remake_logs()
        return True

    def _remake_logs(self) -> bool:
        """Somebody has removed or changed agent.logs: the trace has it all. False until it is there again."""
        self._logs_lost = True
        if self._remaking is None:
            self._remaking = asyncio.get_running_loop().create_task(self._remade())
        return False

    async def _remade(self) -> None:
        try:
            await self.settle_logs()
        except (OSError, Unavailable) as error:
            self._observer.logs_lag(self, error)
            return
        except (Damaged, RunUnusable) as error:
            log.error("run %s: agent.logs cannot be made again: %s", self.run_id, error)  # noqa: TRY400
        finally:
            self._remaking = None
        self._logs_lost = False
        self.render_logs()

    def _cancel_render(self) -> None:
        if self._logs_due is not None:
            self._logs_due.cancel()
            self._logs_due = None

    def abandon(self) -> None:
        """The trace is lost: forget what is queued, and close the files."""
        self._cancel_render()
        self._queued.clear()
        self._unrendered.clear()
        self.files.abandon()

    def close(self) -> None:
        """Complete the transcript and close the files."""
        self._cancel_render()
        self.render_logs()
        self.files.close()
