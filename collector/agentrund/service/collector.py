"""The collector as a whole: its parts, their start, their beat, and their orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import Final

from agentrund import __version__
from agentrund.formats import layout
from agentrund.model.errors import Damaged
from agentrund.receivers.unix_socket import UnixSocketDoor
from agentrund.service import discovery, maintenance
from agentrund.service.clock import Clock
from agentrund.service.config import Settings
from agentrund.service.listener import Listener
from agentrund.service.process_watch import ProcessWatch
from agentrund.service.requests import Requests
from agentrund.service.runs import Runs
from agentrund.service.spool import SpoolIntake, spool_folder
from agentrund.service.status import status
from agentrund.service.stream_service import StreamService
from agentrund.service.syncing import Syncing
from agentrund.store.index_file import IndexFile
from agentrund.store.root import Root

log: Final = logging.getLogger(__name__)

TICK_S: Final = 0.25
TICKS_PER_SYNC: Final = 3
"""A sync every 0.75 s: with its own duration nothing stays unsynced for more than about a second."""
TICKS_PER_SPOOL: Final = 4
CLOCK_GAP_S: Final = 5.0
"""A tick this late means that we slept, not that everybody else died."""


class Collector:
    """One root, its doors and its runs."""

    def __init__(self, settings: Settings, root: Root, listener: Listener) -> None:
        self.settings = settings
        self.root = root
        self.listener = listener
        self.clock = Clock()
        self.started_at = self.clock.iso(self.clock.now())
        self.otlp_address: str | None = None
        self.syncing = Syncing()
        self.watch = ProcessWatch()
        self.runs = Runs(root, _open_index(root), self.clock, settings.blob_max_bytes)
        self.stream = StreamService(settings, self.runs, self.watch, self.syncing)
        self.stream.status = lambda: status(self)
        self.stream.do = Requests(self.runs).take
        self.spool = SpoolIntake(spool_folder(), self.stream)
        self.door: UnixSocketDoor
        self._beat: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Recover what was open, then open the doors and say so."""
        recovered = self.runs.recover()
        await self.spool.take_all()  # before anybody is judged dead: what they wrote down may end well
        for actor in recovered:
            for source in actor.state.live_sources():
                self.stream.watch(actor, source)
            self.stream.linger(actor)
        self.door = UnixSocketDoor(self.listener.socket, self.stream)
        self._beat = asyncio.create_task(self._run_beat())
        discovery.write(
            discovery.Discovery(
                pid=os.getpid(),
                socket=str(self.listener.path),
                otlp_grpc=self.otlp_address,
                root=self.root.folder.path,
                version=__version__,
                started_at=self.started_at,
            )
        )
        self._greet()

    def _greet(self) -> None:
        lines = [
            f"agentrund {__version__} is recording",
            f"  root       {self.root.folder.path}",
            f"  socket     {self.listener.path}",
            f"  OTLP/gRPC  {self.otlp_address or 'off'}",
            "",
            "paste into an agent's environment:",
            f"  export AGENTRUND_SOCKET={self.listener.path}",
        ]
        if self.otlp_address is not None:
            lines += [
                f"  export OTEL_EXPORTER_OTLP_ENDPOINT=http://{self.otlp_address}",
                "  export OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
            ]
        print("\n".join(lines), flush=True)  # noqa: T201 - what `serve` is for a person

    async def _run_beat(self) -> None:
        last, ticks = self.clock.monotonic(), 0
        while True:
            await asyncio.sleep(TICK_S)
            now = self.clock.monotonic()
            if now - last > CLOCK_GAP_S:
                log.warning("our own clock jumped by %.0f s: everybody gets a fresh interval", now - last)
                self.stream.grant_interval()
            last, ticks = now, ticks + 1
            self.stream.tick()
            if ticks % TICKS_PER_SPOOL == 0:
                await self.spool.take_all()
            if ticks % TICKS_PER_SYNC == 0:
                self.syncing.sync([actor.files for actor in self.runs.actors()])

    async def stop(self) -> None:
        """Take and acknowledge what has been sent, derive what has ended; open runs stay open."""
        discovery.remove(self.listener.path)
        if self._beat is not None:
            self._beat.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beat
            self.door.close()
        self.watch.close()
        await self.runs.close()
        await self.syncing.close()


def _open_index(root: Root) -> IndexFile:
    """The index, made again from the traces where it is missing beside runs, or damaged."""
    index = IndexFile(root.folder)
    try:
        known = index.check()
    except Damaged as error:
        log.warning("the index is damaged (%s): making it again from the traces", error)
        known = 0
    else:
        if known or not root.run_ids():
            return index
        log.warning("the index is missing: making it again from the traces")
    index.close()
    maintenance.rebuild_index(root)
    return IndexFile(root.folder)
