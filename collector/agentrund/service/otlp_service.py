"""Everything behind the OTLP doors: journal first, answer, then decode, map, order and store.

A request is acknowledged once it is in the intake journal. One worker takes the journal's records in
order; what it decides (``sequencer.otlp_runs``) is performed by ``OtlpRunner``. A record is done when all
its items are in traces; what was not done at a crash is taken from the journal again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Final

from agentrund.model.otlp import Encoding, IntakeRecord, Mapped, Peer, Signal
from agentrund.model.source import Identity
from agentrund.receivers.decode import mapping, otlp
from agentrund.receivers.sink import Taken
from agentrund.sequencer.otlp_commands import Command
from agentrund.sequencer.otlp_runs import OtlpRuns
from agentrund.service.clock import Clock
from agentrund.service.otlp_runner import OtlpRunner
from agentrund.service.peer_finder import PeerFinder
from agentrund.store.intake import Intake

log: Final = logging.getLogger(__name__)

RETRY_S: Final = 0.5
COMMANDS_AT_ONCE: Final = 64
"""Between two looks at the other senders: about 3 ms of feeding."""


class OtlpService:
    """The sink of the OTLP doors, and the worker behind it."""

    def __init__(
        self, intake: Intake, machine: OtlpRuns, runner: OtlpRunner, finder: PeerFinder, clock: Clock
    ) -> None:
        self._intake = intake
        self._machine = machine
        self._runner = runner
        self._finder = finder
        self._clock = clock
        self._queue: deque[tuple[IntakeRecord, float]] = deque()
        self._wake = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._stopping = False
        self.received = 0
        self.duplicates = 0
        runner.on_exit = self._process_exited

    @property
    def waiting(self) -> int:
        """Requests that are in the journal and not yet in traces."""
        return self._intake.undone

    # -- the sink ---------------------------------------------------------------------------------

    async def take(self, signal: Signal, encoding: Encoding, body: bytes, peer: Peer) -> Taken:
        """Store a request. Raises Rejected where it is none, Unavailable where it cannot be stored."""
        for _ in otlp.check(signal, encoding, body):
            await asyncio.sleep(0)
        if not body:
            return Taken.EMPTY
        peer = await self._finder.find(peer)
        # Redaction of the body belongs here: nothing of it has touched the disk yet.
        now = self._clock.monotonic()
        record = self._intake.append(self._clock.now(), signal, encoding, body, peer, now=now)
        self.received += 1
        if record is None:
            self.duplicates += 1
            return Taken.DUPLICATE
        self._queue.append((record, now))
        self._wake.set()
        return Taken.STORED

    # -- the worker -------------------------------------------------------------------------------

    def start(self) -> None:
        """Take what was not done before a restart, then what comes."""
        now = self._clock.monotonic()
        self._queue.extend((record, now) for record in self._intake.replay())
        self._worker = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            while self._queue:
                await self._work_safely(*self._queue.popleft())
            self._wake.clear()
            if self._stopping:
                return
            await self._wake.wait()

    async def _work_safely(self, record: IntakeRecord, now: float) -> None:
        """A request that meets a bug of ours is kept in the journal and said aloud; the next one goes on."""
        try:
            await self._work(record, now)
        except Exception:
            log.exception("OTLP request %d stays in the intake journal: a bug of ours", record.rq)

    async def _work(self, record: IntakeRecord, now: float) -> None:
        """Decode and map a request that came at ``now``, a few items at a time; perform what follows."""
        # Watched from the first byte on: a program killed while its spans are held has no run yet.
        self._runner.watch_over(record.peer.identity)
        items: list[Mapped] = []
        for item in otlp.decode(record.signal, record.encoding, record.body):
            if item is None:
                await asyncio.sleep(0)
            else:
                items.append(mapping.map_item(item))
        await self._perform(self._machine.take(record.rq, record.arrived_at, record.peer, items, now))

    async def _perform(self, commands: Iterable[Command]) -> None:
        self._runner.add(commands)
        while self._runner.waiting:
            done = self._runner.run(COMMANDS_AT_ONCE)
            if self._stopping and not done:
                return  # the journal still has it
            await asyncio.sleep(0 if done else RETRY_S)

    def tick(self, now: float) -> None:
        """Release what waited long enough at ``now``, judge what has ended, forget old segments."""
        self._runner.add(self._machine.tick(now))
        if self._runner.run():
            self._intake.drop(now)

    def grant_interval(self, now: float) -> None:
        """Our own clock has jumped: silence until ``now`` does not count."""
        self._machine.grant(now)

    def _process_exited(self, identity: Identity, cause: str) -> None:
        self._runner.add(
            self._machine.process_exited(identity, cause, self._clock.monotonic(), self._clock.now())
        )
        self._runner.run()

    def dup_journal(self) -> int | None:
        """A descriptor to sync the journal with; the caller closes it."""
        return self._intake.dup()

    async def stop(self) -> None:
        """Work off what was acknowledged; feed what is held. Runs stay open."""
        self._stopping = True
        self._wake.set()
        if self._worker is not None:
            await self._worker
        self._runner.add(self._machine.shutdown(self._clock.monotonic()))
        self._runner.run()
        self._intake.close()
