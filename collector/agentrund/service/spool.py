"""Spool files: what clients wrote down while no collector could be reached.

The writer of a file holds a lock on it for as long as it lives, and sends the file itself when it
connects again. A file whose lock is free is an orphan: it is taken in here, with the same
de-duplication as any reconnect, and removed once everything in it is stored.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import stat
from pathlib import Path
from typing import Final

from agentrund.model.errors import Rejected, Unavailable
from agentrund.model.source import Identity
from agentrund.receivers.decode.jsonl import EventFrame, Hello, decode
from agentrund.receivers.line_splitter import TOO_LONG, LineSplitter
from agentrund.service.places import xdg_folder
from agentrund.service.stream_service import StreamService
from agentrund.service.stream_session import Session

log: Final = logging.getLogger(__name__)

_CHUNK: Final = 1 << 18
_SUFFIX: Final = ".jsonl"


def spool_folder() -> Path:
    """Where this user's clients spool: ``$AGENTRUND_SPOOL``, else below the XDG state folder."""
    given = os.environ.get("AGENTRUND_SPOOL")
    return (
        Path(given) if given else xdg_folder(os.environ, "XDG_STATE_HOME", ".local/state") / "agentrund/spool"
    )


class SpoolIntake:
    """Takes orphaned spool files in, between the work of the living."""

    def __init__(self, folder: Path, service: StreamService) -> None:
        self._folder = folder
        self._service = service
        self.taken = 0

    async def take_all(self) -> None:
        """Take in every orphan that is there. What cannot be stored now stays for the next time."""
        try:
            names = sorted(entry.name for entry in os.scandir(self._folder))
        except OSError:
            return
        for name in names:
            if name.endswith(_SUFFIX) and not name.startswith("."):
                try:
                    await self._take(self._folder / name)
                except (Unavailable, OSError) as error:
                    log.warning("spool file %s has to wait: %s", name, error)

    async def _take(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
                return
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # its writer lives, and hands it in itself
            await self._read(fd, info.st_uid)
            os.unlink(path)  # noqa: PTH108 - a local folder of small files
            self.taken += 1
        finally:
            os.close(fd)

    async def _read(self, fd: int, uid: int) -> None:
        session = Session(self._service, _Nobody(), Identity(uid=uid), None)
        session.began = _first_event_ts(fd, self._service.max_line_bytes)
        lines = LineSplitter(self._service.max_line_bytes)
        offset = 0
        while chunk := os.pread(fd, _CHUNK, offset):
            offset += len(chunk)
            for line in lines.feed(chunk):
                _take_line(session, line)
            session.commit()
            await asyncio.sleep(0)
        session.writer_is_dead()


def _take_line(session: Session, line: bytes | None) -> None:
    if line is TOO_LONG:
        session.refused(Rejected("line_too_long", "a spooled line is too long; it was skipped"))
        return
    try:
        frame = decode(line)
        try:
            session.frame(frame)
        except Rejected as error:
            if not isinstance(frame, Hello) or error.code != "unknown_run":
                raise
            # The run it belonged to is gone with its root: what it said is kept in a run of its own.
            session.frame(Hello(frame.source, frame.pid, frame.session_id, None, frame.metadata))
    except Rejected as error:
        session.refused(error)


def _first_event_ts(fd: int, limit: int) -> float | None:
    """When the file's story begins: the time of its first event."""
    lines = LineSplitter(limit)
    for line in lines.feed(os.pread(fd, _CHUNK, 0)):
        try:
            frame = None if line is TOO_LONG else decode(line)
        except Rejected:
            continue
        if isinstance(frame, EventFrame) and frame.event.ts is not None:
            return frame.event.ts
    return None


class _Nobody:
    """The other end of a file."""

    stalled = False

    def send(self, data: bytes) -> None:
        """Nobody reads replies to a file."""

    def drain(self) -> None:
        """A file has no more than what was read."""

    def resume(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""
