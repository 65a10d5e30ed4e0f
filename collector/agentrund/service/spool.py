"""Spool files: what clients wrote down while no collector could be reached.

The writer of a file holds a lock on it for as long as it lives, and sends the file itself when it
connects again. A file whose lock is free is an orphan: it is taken in here, with the same
de-duplication as any reconnect, and removed once everything in it is stored.
"""

from __future__ import annotations

import asyncio
import dataclasses
import fcntl
import logging
import os
import stat
from pathlib import Path
from typing import Final

from agentrund.model.errors import AgentrundError, Rejected
from agentrund.model.source import Identity
from agentrund.receivers.decode.jsonl import EventFrame, Hello, decode
from agentrund.receivers.line_splitter import TOO_LONG, LineSplitter
from agentrund.service.access import Access
from agentrund.service.places import xdg_folder
from agentrund.service.stream_service import StreamService
from agentrund.service.stream_session import Session

log: Final = logging.getLogger(__name__)

_CHUNK: Final = 1 << 18
_SUFFIX: Final = ".jsonl"
QUARANTINED: Final = 64 << 20
"""Bytes kept of a file that has no place: the most a client spools by default."""


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
        self._told: set[str] = set()
        self._one_at_a_time = asyncio.Lock()

    def holds(self, source: str) -> bool:
        """Whether a source has written something down."""
        return (self._folder / f"{source}{_SUFFIX}").exists()

    async def take_last_words(self, source: str, cause: str) -> None:
        """Take in what a source wrote down that has just died of ``cause``."""
        await self._take_safely(f"{source}{_SUFFIX}", cause)

    async def take_all(self) -> None:
        """Take in every orphan that is there. What cannot be stored now stays for the next time."""
        try:
            names = sorted(entry.name for entry in os.scandir(self._folder))
        except OSError:
            return
        for name in names:
            if name.endswith(_SUFFIX) and not name.startswith("."):
                await self._take_safely(name, "process exited")

    async def _take_safely(self, name: str, cause: str) -> None:
        """Take a file in; one that cannot be taken now is said once, and does not stand before the others."""
        async with self._one_at_a_time:
            try:
                await self._take(self._folder / name, cause)
            except Exception as error:
                if name in self._told:
                    return
                self._told.add(name)
                expected = isinstance(error, AgentrundError | OSError)
                log.warning("spool file %s has to wait: %s", name, error, exc_info=not expected)
            else:
                self._told.discard(name)

    async def _take(self, path: Path, cause: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
                return
            if not Access.owns(info.st_uid):
                raise Rejected("not_allowed", f"it belongs to uid {info.st_uid}")
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # its writer lives, and hands it in itself
            await self._take_in(fd, path, info.st_uid, cause)
        finally:
            os.close(fd)

    async def _take_in(self, fd: int, path: Path, uid: int, cause: str) -> None:
        try:
            await self._read(fd, uid, cause)
        except Rejected as error:
            if error.code == "not_allowed":
                return  # somebody living uses the source: the file waits until that is over
            log.warning("spool file %s is refused: %s; moved to quarantine", path.name, error.message)
            self._service.runs.root.quarantine("spool", path.name, os.pread(fd, QUARANTINED, 0))
        os.unlink(path)  # noqa: PTH108 - a local folder of small files

    async def _read(self, fd: int, uid: int, cause: str) -> None:
        """Take every line, hello first. Raises Rejected where the hello is refused."""
        session = Session(self._service, _Nobody(), Identity(uid=uid), None)
        session.began = _first_event_ts(fd, self._service.max_line_bytes)
        lines = LineSplitter(self._service.max_line_bytes)
        offset, greeted = 0, False
        while chunk := os.pread(fd, _CHUNK, offset):
            offset += len(chunk)
            for line in lines.feed(chunk):
                if greeted:
                    _take_line(session, line)
                else:
                    _greet(session, line)
                    greeted = True
            session.commit()
            await asyncio.sleep(0)
        session.writer_is_dead(cause)


def _greet(session: Session, line: bytes | None) -> None:
    """The first line. Raises Rejected where it is no hello, or one that has no place."""
    hello = None if line is TOO_LONG else decode(line)
    if not isinstance(hello, Hello):
        raise Rejected("bad_frame", "the first line of a spool file is a hello")
    # Whoever holds the lock is dead: what follows is an orphan's, whatever its hello says.
    hello = dataclasses.replace(hello, orphan=True)
    try:
        session.frame(hello)
    except Rejected as error:
        if error.code != "unknown_run":
            raise
        # The run it belonged to is gone with its root: what it said is kept in a run of its own.
        session.frame(dataclasses.replace(hello, run_id=None))


def _take_line(session: Session, line: bytes | None) -> None:
    try:
        if line is not TOO_LONG:
            session.frame(decode(line))
            return
        refusal = Rejected("line_too_long", "a spooled line is too long; it was skipped")
    except Rejected as error:
        refusal = error
    session.refused(refusal)


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
    busy = False

    def send(self, data: bytes) -> None:
        """Nobody reads replies to a file."""

    def drain(self) -> None:
        """A file has no more than what was read."""

    def resume(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""
