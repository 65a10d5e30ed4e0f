"""Spool files: what clients wrote down while no collector could be reached.

The writer of a file holds a lock on it for as long as it lives, and sends the file itself when it
connects again. A file whose lock is free is an orphan: it is taken in here, with the same
de-duplication as any reconnect, and removed once everything in it is stored.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agentrund.model.errors import AgentrundError, Rejected, Unavailable
from agentrund.model.run_state import RunState
from agentrund.model.source import Identity
from agentrund.receivers.decode.jsonl import Control, Hello, decode
from agentrund.receivers.line_splitter import TOO_LONG, LineSplitter
from agentrund.service.spool_files import SUFFIX, NotTakenError, head, names, orphan
from agentrund.service.stream_service import StreamService
from agentrund.service.stream_session import Session

log: Final = logging.getLogger(__name__)

_CHUNK: Final = 1 << 18
QUARANTINED: Final = 64 << 20
"""Bytes kept of a file that has no place: the most a client spools by default."""
_GROWTH: Final = 64 << 20
"""Bytes by which a file may grow while it is read, before it is left to whoever writes to it."""
_PAUSE_MAX_S: Final = 10.0
"""Between two looks at a file that has to wait: at first a second, then longer."""
_CONTROLS: Final = frozenset({"lost", "bye", "heartbeat"})


@dataclass(slots=True)
class _Wait:
    """A file that could not be taken, and when it is looked at again."""

    until: float
    pause: float = 1.0


@dataclass(slots=True)
class Concerned:
    """What ties a file to runs that are open: the ids of runs, sources and sessions."""

    runs: set[str] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)
    sessions: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, states: Iterable[RunState]) -> Concerned:
        """Those of some runs."""
        found = cls()
        for state in states:
            found.runs.add(state.run_id)
            found.sources.update(state.sources)
            if state.session_id is not None:
                found.sessions.add(state.session_id)
        return found

    def is_met_by(self, hello: Hello) -> bool:
        """Whether what follows a hello may land in one of the runs."""
        parent = (hello.parent or "").partition("/")[0]
        return (
            hello.run_id in self.runs
            or hello.session_id in self.sessions
            or not self.sources.isdisjoint((hello.source, parent))
        )


class SpoolIntake:
    """Takes orphaned spool files in, between the work of the living."""

    def __init__(self, folder: Path, service: StreamService) -> None:
        self._folder = folder
        self._service = service
        self._waiting: dict[str, _Wait] = {}
        self._sessions: dict[str, str] = {}
        self._said = False
        self._one_at_a_time = asyncio.Lock()

    # -- what the lives of sources ask for --------------------------------------------------------

    def holds(self, source: str) -> bool:
        """Whether a source has written something down."""
        return (self._folder / f"{source}{SUFFIX}").exists()

    async def take_last_words(self, source: str, cause: str) -> None:
        """Take in what a source wrote down that has just died of ``cause``."""
        await self._take_safely(f"{source}{SUFFIX}", cause)

    def is_behind(self, session_id: str | None) -> bool:
        """Whether what came before in a session still waits in a file from before our start."""
        return session_id in self._sessions.values()

    # -- taking in --------------------------------------------------------------------------------

    async def begin(self, states: list[RunState]) -> None:
        """Take in what may belong to runs that are open, before their sources are judged.

        The rest of what is there may be gigabytes: it is only looked at, and left to ``take_all``.
        """
        concerned = Concerned.of(states)
        for name in self._names():
            hello = self._hello(name)
            if hello is not None and concerned.is_met_by(hello):
                await self._take_safely(name, "process exited")
            elif hello is not None and hello.session_id is not None:
                self._sessions[name] = hello.session_id
            await asyncio.sleep(0)

    async def take_all(self) -> None:
        """Take in every orphan that is there. What cannot be taken now stays for another time."""
        found = self._names()
        still = self._waiting.keys() & set(found)
        self._waiting = {name: self._waiting[name] for name in still}
        now = asyncio.get_running_loop().time()
        for name in found:
            if (wait := self._waiting.get(name)) is None or wait.until <= now:
                await self._take_safely(name, "process exited")

    def _names(self) -> list[str]:
        try:
            found = names(self._folder)
        except NotTakenError as error:
            if not self._said:
                log.warning("spool folder %s is left alone: %s", self._folder, error)
            self._said = True
            return []
        self._said = False
        return found

    def _hello(self, name: str) -> Hello | None:
        with suppress(OSError, NotTakenError), orphan(self._folder / name) as file:
            return None if file is None else head(file[0])[0]
        return None

    async def _take_safely(self, name: str, cause: str) -> None:
        """Take a file in; one that cannot be taken now is said once, and does not stand before the others."""
        async with self._one_at_a_time:
            try:
                with orphan(self._folder / name) as file:
                    if file is not None:
                        await self._take_in(*file, self._folder / name, cause)
            except Exception as error:  # noqa: BLE001 - whatever one file holds, the others are taken in
                self._wait(name, error)
            else:
                self._waiting.pop(name, None)
            self._sessions.pop(name, None)

    def _wait(self, name: str, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        wait = self._waiting.get(name)
        if wait is not None:
            wait.pause = min(2 * wait.pause, _PAUSE_MAX_S)
            wait.until = now + wait.pause
            return
        self._waiting[name] = _Wait(now)
        expected = isinstance(error, AgentrundError | OSError | NotTakenError)
        log.warning("spool file %r has to wait: %s", name, error, exc_info=None if expected else error)

    async def _take_in(self, fd: int, uid: int, path: Path, cause: str) -> None:
        try:
            read = await self._read(fd, uid, cause)
        except Rejected as error:
            if error.code in ("not_allowed", "unknown_run"):
                raise  # somebody living uses the source, or its run was lost just now: the file waits
            kept = os.pread(fd, QUARANTINED, 0)
            self._service.runs.root.quarantine("spool", path.name[:200], kept)
            log.warning("spool file %r is refused: %s; moved to quarantine", path.name, error.message)
        else:
            if os.fstat(fd).st_size > read:
                raise NotTakenError("somebody writes to it without holding its lock")
        with suppress(FileNotFoundError):
            if os.lstat(path).st_ino == os.fstat(fd).st_ino:
                os.unlink(path)  # noqa: PTH108 - a local folder of small files

    async def _read(self, fd: int, uid: int, cause: str) -> int:
        """Take every line, hello first; returns how many bytes there were.

        Raises Rejected where the hello is refused, or the run is taken away meanwhile.
        """
        session = Session(self._service, _Nobody(), Identity(uid=uid), None)
        _, session.began = head(fd)
        lines = LineSplitter(self._service.max_line_bytes)
        offset, greeted = 0, False
        most = os.fstat(fd).st_size + _GROWTH
        try:
            while offset < most and (chunk := os.pread(fd, _CHUNK, offset)):
                offset += len(chunk)
                greeted = _take_lines(session, lines.feed(chunk), greeted=greeted)
                session.commit()
                await asyncio.sleep(0)
            # Nobody goes on with the last line: it is whole, or torn for ever.
            greeted = _take_lines(session, lines.feed(b"\n"), greeted=greeted)
            session.commit()
            await session.kept()  # the file goes when this is as safe
        except BaseException:
            self._service.disconnected(session)
            raise
        if offset and not greeted:
            raise Rejected("bad_frame", "it holds no frame")
        session.writer_is_dead(cause)
        return offset


def _take_lines(session: Session, lines: list[bytes | None], *, greeted: bool) -> bool:
    for line in lines:
        # A disk that lost power leaves zeros where data was to come.
        text = line if line is TOO_LONG else line.strip(b"\0")
        if text == b"":
            continue
        if greeted:
            _take_line(session, text)
        else:
            _greet(session, text)
            greeted = True
    return greeted


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
        if line is TOO_LONG:
            raise Rejected("line_too_long", "a spooled line is too long; it was skipped")  # noqa: TRY301
        frame = decode(line)
        if isinstance(frame, Hello) or (isinstance(frame, Control) and frame.op not in _CONTROLS):
            raise Rejected("bad_frame", "a spool file holds one hello and events")  # noqa: TRY301
        session.frame(frame)
    except Rejected as error:
        if error.code == "unknown_run":
            raise  # the run is gone: there is nothing left to mark
        session.refused(error)


class _Nobody:
    """The other end of a file."""

    stalled = False
    busy = False

    def send(self, data: bytes) -> None:
        """Nobody reads replies to a file."""

    def acknowledge(self) -> None:
        """A file is told nothing: it is removed."""

    def stall(self, error: Unavailable) -> None:
        """Whoever reads it waits for what it had to say to be kept."""

    def drain(self) -> None:
        """A file has no more than what was read."""

    def resume(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""
