"""The collector as a whole: its parts, their start, their beat, and their orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator
from functools import partial
from typing import Final

from agentrund import __version__
from agentrund.formats import layout, navigate
from agentrund.model.source import DOOR_SOCKET
from agentrund.receivers.budget import Budget
from agentrund.receivers.unix_socket import UnixSocketDoor
from agentrund.service import discovery, file_systems, notify, standard_streams
from agentrund.service.clock import Clock
from agentrund.service.config import Settings
from agentrund.service.exposure import Demands
from agentrund.service.listener import Listener
from agentrund.service.memory import Memory
from agentrund.service.otlp_door import OtlpDoor
from agentrund.service.process_watch import ProcessWatch
from agentrund.service.rarely import Rarely
from agentrund.service.recovery import Recovery
from agentrund.service.run_actor import RunActor
from agentrund.service.runs import Runs
from agentrund.service.spool import SpoolIntake
from agentrund.service.spool_files import spool_folder
from agentrund.service.status import status
from agentrund.service.stream_service import StreamService
from agentrund.service.survey import Survey
from agentrund.service.syncing import POLICIES
from agentrund.store import descriptors
from agentrund.store.index_file import IndexFile
from agentrund.store.root import Root

log: Final = logging.getLogger(__name__)

TICK_S: Final = 0.25
TICKS_PER_SYNC: Final = 3
"""A sync every 0.75 s: with its own duration nothing stays unsynced for more than about a second."""
SPOOL_S: Final = 1.0
CLOCK_GAP_S: Final = 5.0
"""A tick this late means that we slept, not that everybody else died."""
CLOCK_GAP_LEAST_S: Final = 1.0
"""With short heartbeats half of their timeout, but no less than a loaded machine keeps us waiting."""


class Collector:
    """One root, its doors and its runs."""

    def __init__(self, settings: Settings, root: Root, listener: Listener, demands: Demands) -> None:
        self.settings = settings
        self.root = root
        self.listener = listener
        self.clock = Clock()
        self.started_at = self.clock.iso(self.clock.now())
        self.syncing = POLICIES[settings.sync]()
        self.watch = ProcessWatch()
        self.runs = Runs(root, IndexFile(root.folder), self.clock, self.syncing, settings.blob_max_bytes)
        self.recovery = Recovery(self.runs)
        self.survey = Survey(self.runs, self.recovery)
        self.stream = StreamService(settings, self.runs, self.watch, partial(status, self))
        self.budget = Budget(settings.spare_memory // 4)
        root.held.most, root.held.on_change = settings.spare_memory // 8, self.budget.count
        root.held.enough = min(root.held.enough, settings.spare_memory // 16)
        self.otlp = OtlpDoor(
            settings, self.runs, self.watch, self.budget, demands, report=partial(status, self)
        )
        self.memory = Memory(settings.max_memory, self.budget, self.otlp.service.shed)
        self.spool = SpoolIntake(spool_folder(), self.stream)
        self.stream.lives.spool = self.spool
        self.stream.is_behind = self.spool.is_behind
        self.door: UnixSocketDoor | None = None
        self._jumped = Rarely("our own clock jumped, everybody gets a fresh interval", self.clock.monotonic)
        self._clock_gap = min(CLOCK_GAP_S, max(CLOCK_GAP_LEAST_S, settings.heartbeat_timeout / 2))
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Recover what was open, then open the doors and say so; everything else is looked at after that."""
        file_systems.warn(self.root.folder.path, os.fstat(self.root.folder.fd).st_dev)
        self.runs.chores.do("NAVIGATE.md", partial(self.root.write_once, layout.NAVIGATE, navigate.text()))
        await self.syncing.begin(self.root.folder)
        recovered = self.recovery.begin()
        # Before anybody is judged dead: what they wrote down may end well.
        await self.spool.begin([actor.state for actor in recovered])
        self._watch(recovered)
        await self.otlp.start()
        door = self.door = UnixSocketDoor(self.listener.socket, self.stream, self.budget)
        self._tasks = [asyncio.create_task(self._run_beat(door)), asyncio.create_task(self._watch_spool())]
        found = discovery.Discovery(
            pid=os.getpid(),
            socket=str(self.listener.path),
            otlp_grpc=self.otlp.grpc_address,
            http=self.otlp.http_address,
            root=self.root.folder.path,
            version=__version__,
            started_at=self.started_at,
        )
        self.runs.chores.do("lock file", self.root.sign)
        announce = partial(discovery.write, found, self.stream.access.gid)
        try:
            announce()
        except OSError:  # a full disk; what is not ours to replace ends the start
            self.runs.chores.do("discovery file", announce)
        self._greet()
        notify.ready()
        self._tasks.append(asyncio.create_task(self.survey.run()))

    def _watch(self, recovered: list[RunActor]) -> None:
        """Judge and watch the sources of runs that are back."""
        for actor in recovered:
            for source in actor.state.live_sources():
                if source.door == DOOR_SOCKET:
                    self.stream.lives.watch(source)
            self.stream.lives.linger(actor)
        self.otlp.restore(recovered)
        if self.survey.rows_seen and not self.recovery.reading:
            self.otlp.work(self.recovery.waiting)

    def _greet(self) -> None:
        lines = [
            f"agentrund {__version__} is recording",
            f"  root       {self.root.folder.path}",
            f"  socket     {self.listener.path}",
            f"  OTLP/gRPC  {self.otlp.grpc_address or 'off'}",
            f"  OTLP/HTTP  {self.otlp.http_address or 'off'}",
            "",
            "paste into an agent's environment:",
            f"  export AGENTRUND_SOCKET={self.listener.path}",
        ]
        lines += [f"  export {line}" for line in self.otlp.environment()]
        standard_streams.say(standard_streams.STDOUT, "\n".join([*lines, ""]))

    async def _run_beat(self, door: UnixSocketDoor) -> None:
        last, ticks = self.clock.monotonic(), 0
        while True:
            await asyncio.sleep(TICK_S)
            descriptors.keep_reserve()
            now = self.clock.monotonic()
            gap, last, ticks = now - last, now, ticks + 1
            with _survived("the beat"):
                if gap > self._clock_gap:
                    self._jumped.warn(f"{gap:.0f} s")
                    self.stream.lives.grant_interval(now)
                    self.otlp.service.grant_interval(now)
                self.stream.has_room()  # who comes over gRPC waits unseen: it is said here
                self.stream.tick(now)
                door.sweep()
                self._watch(self.recovery.again())
            with _survived("the OTLP beat"):
                self.otlp.service.tick(now)
                self.otlp.wire_file.tick(now)
            with _survived("the look at our memory"):
                self.memory.tick(now)
            if ticks % TICKS_PER_SYNC == 0:
                with _survived("the rows"):
                    self.runs.entries.refresh()
                    self.stream.requests.mend_index()
                with _survived("syncing"):
                    self.syncing.beat()

    async def _watch_spool(self) -> None:
        while True:
            with _survived("the spool"):
                await self.spool.take_all()
            await asyncio.sleep(SPOOL_S)

    async def stop(self) -> bool:
        """Take and acknowledge what has been sent, derive what has ended; open runs stay open.

        False where something long was left to the next start.
        """
        notify.stopping()
        self.runs.chores.drop("discovery file")
        discovery.remove(self.listener.path)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.door is not None:
            self.door.drain()
            await self.syncing.drain()  # what was read is acknowledged before we hang up
            self.door.close()
        await self.otlp.stop()
        self.watch.close()
        idle = await self.survey.close()
        finished = await self.runs.close() and idle
        await self.syncing.close()
        return finished


@contextlib.contextmanager
def _survived(what: str) -> Iterator[None]:
    """A bug in one part is said aloud, and must not end the judging of everybody else."""
    try:
        yield
    except Exception:
        log.exception("%s met a bug of ours", what)
