"""Everything behind the OTLP doors: journal first, answer, then decode, map, order and store.

A request is acknowledged once it is in the intake journal. One worker takes the journal's records in
order; what it decides (``sequencer.otlp_runs``) is performed by ``OtlpRunner``. A record is done when all
its items are in traces; what was not done at a crash is taken from the journal again, and so is a body
that there was no room to keep in memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from agentrund.model.errors import AgentrundError, Damaged, Rejected, Unavailable
from agentrund.model.otlp import Encoding, IntakeRecord, Mapped, Peer, Signal
from agentrund.model.source import Identity
from agentrund.receivers.budget import Budget, Claim
from agentrund.receivers.decode import mapping, otlp
from agentrund.receivers.sink import Receipt, Taken
from agentrund.receivers.wire import Wire
from agentrund.sequencer import otlp_control
from agentrund.sequencer.otlp_commands import Part
from agentrund.sequencer.otlp_runs import OtlpRuns
from agentrund.service.admission import Admission
from agentrund.service.clock import Clock
from agentrund.service.otlp_replay import OtlpReplay
from agentrund.service.otlp_runner import OtlpRunner
from agentrund.service.peer_finder import PeerFinder
from agentrund.service.rarely import Rarely
from agentrund.service.syncing import Syncing
from agentrund.store.intake import Intake

log: Final = logging.getLogger(__name__)

RETRY_S: Final = 0.5
TURN_S: Final = 0.002
"""Commands are performed for so long between two looks at the other senders."""
ITEMS_AT_ONCE: Final = 4000
BYTES_AT_ONCE: Final = 4 << 20
"""Of a request: an item may take forty times its encoded size while it is mapped."""
BACKLOG_REQUESTS: Final = 100_000
BACKLOG_BYTES: Final = 1 << 30
"""Acknowledged and not worked off: a minute's work on the disk; beyond it senders wait."""
TELL_EVERY_S: Final = 60.0
MARKS_AT_ONCE: Final = 32
"""Rejected requests of which a mark in their senders' runs is under way."""
PUT_OFF_MOST: Final = 8
"""Ticks that an errand waits for requests which were put off."""
STOP_S: Final = 2.0
"""At a stop the worker gets this long; the journal keeps the rest for the next start."""


class _Errand:
    """Something to be done in its turn; ``done`` tells who asked for it, who may have left."""

    def __init__(self, decide: Callable[[], Iterable[Part]]) -> None:
        self.decide = decide
        self.turns_given_up = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def succeed(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class OtlpService:
    """The sink of the OTLP doors, and the worker behind it."""

    def __init__(
        self,
        intake: Intake,
        machine: OtlpRuns,
        runner: OtlpRunner,
        finder: PeerFinder,
        clock: Clock,
        *,
        replay: OtlpReplay,
        syncing: Syncing,
        budget: Budget,
        max_request_bytes: int,
        heartbeat_s: float,
    ) -> None:
        self._intake = intake
        self._machine = machine
        self._runner = runner
        self._replay = replay
        self._finder = finder
        self._clock = clock
        self._syncing = syncing
        self._budget = budget
        self._heartbeat_s = heartbeat_s
        # In gRPC's buffer, and once more as the bytes we are given.
        self.admission = Admission(budget, 2 * max_request_bytes, self._has_room)
        self._queue: deque[tuple[IntakeRecord | int, float] | _Errand] = deque()
        self._put_off: list[tuple[int, float]] = []
        self._errands_put_off: list[_Errand] = []
        self._unreadable = Rarely("an acknowledged OTLP request cannot be read again", clock.monotonic)
        self._wake = asyncio.Event()
        self._may_work = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._whole = False
        """Runs from before a restart are back: nobody is judged before that."""
        self._is_due = False
        """A tick has come: the worker looks at what time has brought."""
        self._is_short = False
        """Memory is short: what is held for its order is to be written."""
        self._stopping = False
        self._marking: set[asyncio.Task[None]] = set()
        self.wire = Wire(clock.iso(clock.now()))
        self.received = 0
        self.duplicates = 0
        self.rejected = 0
        self._told_at: float | None = None
        self.on_stored: Callable[[], None] = lambda: None
        """Called when the journal has a new request."""
        runner.on_exit = self._process_exited

    @property
    def waiting(self) -> int:
        """Requests that are in the journal and not yet in traces."""
        return self._intake.undone

    # -- the sink ---------------------------------------------------------------------------------

    async def admit(self, remaining_s: float | None, sender: str) -> Claim:
        """Room for one request, before it is read. Raises Overloaded where there is none in time."""
        return await self.admission.enter(remaining_s, sender)

    def cut(self) -> bool:
        """Whether a request that does not come to its end has to make room for those that wait."""
        self.admission.refused += self.admission.waiting > 0
        return self.admission.waiting > 0

    def note_size(self, sender: str, size: int, claim: Claim) -> None:
        """A request was read, for which there was ``claim``."""
        self.admission.note(sender, size, claim)

    def note_rejected(self, reason: str, peer: Peer) -> None:
        """A request was rejected by the door itself: counted, said once a minute, and in its sender's run."""
        self.rejected += 1
        self.wire.note_rejected(peer.client)
        if len(self._marking) < MARKS_AT_ONCE:
            mark = asyncio.create_task(self._mark(reason, peer))
            self._marking.add(mark)
            mark.add_done_callback(self._marking.discard)
        now = self._clock.monotonic()
        if self._told_at is None or now - self._told_at >= TELL_EVERY_S:
            self._told_at = now
            log.warning("an OTLP request was rejected: %s (%d so far)", reason, self.rejected)

    async def _mark(self, reason: str, peer: Peer) -> None:
        """Leave a mark in the run of the process whose request was rejected, where it has just one."""
        with suppress(AgentrundError):
            identity = (await self._finder.find(peer)).identity
            if identity.pid is not None:
                await self.after_all(lambda: otlp_control.rejected(self._machine, identity, reason))

    async def take(self, signal: Signal, encoding: Encoding, body: bytes, peer: Peer) -> Receipt:
        """Store a request. Raises Rejected where it is none, Unavailable where it cannot be stored."""
        bad: list[str] = []
        try:
            for why in otlp.check(signal, encoding, body):
                if why is None:
                    await asyncio.sleep(0)
                else:
                    bad.append(why)
        except Rejected as error:
            self.note_rejected(error.message, peer)
            raise
        if not body:
            return Receipt(Taken.EMPTY)
        peer = await self._finder.find(peer)
        # Before it is answered: how a process ended is told to those who watched it.
        self._runner.watch_over(peer.identity)
        await self._syncing.room(self._intake.unsynced.together)
        # Redaction of the body belongs here: nothing of it has touched the disk yet.
        now = self._clock.monotonic()
        try:
            record = self._intake.append(self._clock.now(), signal, encoding, body, peer, now=now)
        except Unavailable:
            self.admission.refused += 1
            raise
        self.received += 1
        if record is None:
            self.duplicates += 1
        else:
            self._syncing.wrote(self._intake.unsynced)
            self._enqueue(record, now)
            self._wake.set()
            self.on_stored()
        # Where this fails the request is in the journal and goes on its way: sent again, it is a duplicate.
        await self._syncing.kept(self._intake.unsynced)
        taken = Taken.DUPLICATE if record is None else Taken.STORED
        return Receipt(taken, len(bad), bad[0] if bad else "")

    # -- the queue --------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        return len(self._queue) < BACKLOG_REQUESTS and self._intake.undone_bytes < BACKLOG_BYTES

    def _enqueue(self, record: IntakeRecord, now: float) -> None:
        """Queue a request that came at ``now``: with its body while there is room, else by its number."""
        if self._budget.used + len(record.body) > self._budget.limit // 4:
            self._queue.append((record.rq, now))
            return
        self._budget.count(len(record.body))
        self._queue.append((record, now))

    def _read(self, entry: tuple[IntakeRecord | int, float]) -> tuple[IntakeRecord, float] | None:
        """The next request.

        None where it cannot be read now (no descriptor, a bad disk): it is put off.
        """
        record, now = entry
        if isinstance(record, int):
            try:
                return self._intake.read(record), now
            except OSError as error:
                self._put_off.append((record, now))
                self._unreadable.warn(f"{error}; it is tried again")
                return None
        self._budget.count(-len(record.body))
        return record, now

    async def after_all(self, decide: Callable[[], Iterable[Part]]) -> None:
        """Have something decided and performed when what is acknowledged by now has been."""
        errand = _Errand(decide)
        self._queue.append(errand)
        self._wake.set()
        await errand.done

    # -- the worker -------------------------------------------------------------------------------

    def start(self) -> None:
        """Take what was not done before a restart, then what comes: into the journal, and no further yet."""
        now = self._clock.monotonic()
        self._queue.extend((rq, now) for rq in self._intake.pending())
        self._worker = asyncio.create_task(self._run())

    def work(self) -> None:
        """Every run that was open is at hand: what waits in the journal finds its place."""
        self._may_work.set()
        self._wake.set()

    async def _run(self) -> None:
        await self._may_work.wait()
        while True:
            await self._replay.run()
            self._whole = True
            while self._queue or self._is_due or self._is_short:
                await self._replay.run()
                await self._work_safely()
                self.admission.pump()
            self._wake.clear()
            await self._work_safely()
            if self._stopping:
                return
            await self._wake.wait()

    async def _work_safely(self) -> None:
        """What is due, else the next request, else what of commands is left.

        A request that meets a bug of ours is kept in the journal and said aloud; the next one goes on.
        """
        try:
            if self._is_due or self._is_short:
                await self._let_time_pass()
            elif not self._queue:
                await self._perform()
            elif isinstance(entry := self._queue.popleft(), _Errand):
                await self._run_errand(entry)
            elif (found := self._read(entry)) is not None:
                await self._work(*found)
        except Damaged as error:
            log.error("an OTLP request in the intake journal cannot be read again: %s", error)  # noqa: TRY400
        except Exception:
            log.exception("an OTLP request stays in the intake journal: a bug of ours")

    async def _run_errand(self, errand: _Errand) -> None:
        if errand.done.done():
            return  # who asked for it has left
        if self._put_off and errand.turns_given_up < PUT_OFF_MOST:
            # What was acknowledged before it comes first, if it can be read within two seconds.
            errand.turns_given_up += 1
            self._errands_put_off.append(errand)
            return
        try:
            await self._perform_parts(errand.decide())
        except Exception as error:  # noqa: BLE001 - it is for who sent us on it
            errand.fail(error)
        else:
            errand.succeed()

    async def _let_time_pass(self) -> None:
        """Judge, and release what has waited long enough; everything, where memory is short."""
        now = self._clock.monotonic()
        if self._is_short:
            self._is_short = False
            await self._perform_parts(self._machine.shutdown(now))
        if self._is_due:
            self._is_due = False
            self._machine.beats_lost(now, self._clock.now(), self._heartbeat_s)
            await self._perform_parts(self._machine.tick(now))

    async def _work(self, record: IntakeRecord, now: float) -> None:
        """Decode and map a request that came at ``now``, a few items at a time; perform what follows."""
        # Once more: after a restart nobody is watched, and of what died since not all is remembered.
        self._runner.watch_over(record.peer.identity)
        await self._syncing.room(self._intake.unsynced.together)
        items: list[Mapped] = []
        size = 0
        for item in otlp.decode(record.signal, record.encoding, record.body):
            if item is None:
                await asyncio.sleep(0)
                continue
            items.append(mapping.map_item(item))
            self.wire.note(item, items[-1], record.arrived_at)
            size += item.size
            if len(items) >= ITEMS_AT_ONCE or size >= BYTES_AT_ONCE:
                await self._take(record, items, now, more=True)
                items, size = [], 0
        await self._take(record, items, now)

    async def _take(
        self, record: IntakeRecord, items: list[Mapped], now: float, *, more: bool = False
    ) -> None:
        await self._perform_parts(
            self._machine.take(record.rq, record.arrived_at, record.peer, items, now, more=more)
        )

    async def _perform_parts(self, parts: Iterable[Part]) -> None:
        """Perform as it is decided; between two parts the other senders have their turn where it is time."""
        until = self._clock.monotonic() + TURN_S
        for commands in parts:
            self._runner.add(commands)
            if self._clock.monotonic() > until:
                await self._perform()
                await asyncio.sleep(0)
                until = self._clock.monotonic() + TURN_S
        await self._perform()

    async def _perform(self) -> None:
        """Perform all there is, and wait where the disk refuses; at a stop the journal keeps what is left."""
        while self._runner.waiting:
            done = self._runner.run(TURN_S)
            if self._stopping and not done:
                return  # the journal still has it
            await asyncio.sleep(0 if done else RETRY_S)

    def tick(self, now: float) -> None:
        """Release what waited long enough at ``now``, judge what has ended, forget old segments."""
        self._runner.watch_again()
        if self._put_off or self._errands_put_off:
            self._queue.extend((*self._put_off, *self._errands_put_off))
            self._put_off.clear()
            self._errands_put_off.clear()
            self._wake.set()
        self._is_due = self._whole
        self._runner.retry()
        if self._runner.run(TURN_S):
            self._intake.drop(now)
        if self._is_due or self._runner.waiting:
            self._wake.set()
        self.admission.pump()

    def shed(self) -> None:
        """Memory is short: what is held for its order is written now."""
        self._is_short = True
        self._wake.set()

    def grant_interval(self, now: float) -> None:
        """Our own clock has jumped: silence until ``now`` does not count."""
        self._machine.grant(now)

    def _process_exited(self, identity: Identity, cause: str) -> None:
        self._machine.process_exited(identity, cause, self._clock.monotonic(), self._clock.now())

    async def stop(self) -> None:
        """Work off what was acknowledged, as far as a stop has time; feed what is held. Runs stay open."""
        self._stopping = True
        for mark in self._marking:
            mark.cancel()
        self._replay.stop()
        self._wake.set()
        if self._worker is not None and not self._may_work.is_set():
            self._worker.cancel()  # the journal still has it all
        if self._worker is not None:
            _, late = await asyncio.wait((self._worker,), timeout=STOP_S)
            for worker in late:
                worker.cancel()
                await asyncio.gather(worker, return_exceptions=True)
        for commands in self._machine.shutdown(self._clock.monotonic()):
            self._runner.add(commands)
        self._runner.retry()
        self._runner.run()
        await self._syncing.drain()  # what is done is marked once its traces are on stable storage
        self._runner.run()
        await self._syncing.drain()
        self._intake.close()
