"""The intake journal: every request on disk before it is acknowledged, until its items are in traces.

Segments are named by the first number they may hold. Numbers come from the arrival time in
milliseconds and only grow, so a number is never used twice, even when segments were lost. Markers
that a request is done are records too, appended after it; segments are dropped oldest first, so a
marker never goes before the request it speaks of.

Ages are monotonic seconds, so that a wall clock that is set makes nothing old, and keeps nothing for
years; what an earlier process wrote counts as written when the journal was opened.

Must not know what is in a body.
"""

from __future__ import annotations

import logging
import mmap
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

from agentrund.formats import intake_record
from agentrund.formats.intake_record import MAGIC
from agentrund.model.errors import Damaged, Unavailable
from agentrund.model.otlp import Encoding, IntakeRecord, Peer, Signal
from agentrund.store.append_file import Quarantine
from agentrund.store.folder import Folder, write_all
from agentrund.store.recent import Recent
from agentrund.store.unsynced import Held, Unsynced

KEEP_S: Final = 600.0
"""How long a request is remembered: retries of the same bytes come within minutes."""
KEEP_REQUESTS: Final = 1 << 17
"""Requests remembered at least, as long as they are that recent: some 6 MB."""
KEEP_SEGMENTS: Final = 16
"""Segments kept only for what they remember: 1 GiB."""
SEGMENT_BYTES: Final = 64 << 20
"""A segment that has reached this is closed; one request is never split."""

SUFFIX: Final = ".intake"

log: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Segment:
    """One file. ``undone`` are its requests without a marker, ``newest`` when it last took one.

    ``written`` is how far ``Intake.unsynced`` had come with its last byte.
    """

    first: int
    size: int = 0
    closed: bool = False
    """Nothing more is appended: it is full, or not what we left."""
    written: int = 0
    newest: float = 0.0
    undone: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        return f"{self.first:016d}{SUFFIX}"


class _Place(NamedTuple):
    """Where a request lies."""

    segment: _Segment
    offset: int
    end: int


class Intake:
    """The journal in ``folder``, which it owns, opened at ``now``. Opening repairs what a kill has torn.

    ``folder`` opens it, made where it is missing. ``quarantine`` gets the bytes that are cut off, with the
    name of their segment; where it cannot keep them nothing is cut, and nothing more is appended there.
    """

    def __init__(
        self,
        folder: Callable[[], Folder],
        quarantine: Quarantine,
        now: float,
        held: Held,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._open_folder = folder
        self._folder = folder()
        self._torn = False
        self._quarantine = quarantine
        self._segment_bytes = segment_bytes
        self._segments: list[_Segment] = []
        self._home: dict[int, _Place] = {}
        self._recent = Recent(KEEP_S, KEEP_REQUESTS)
        self._last_rq = 0
        self._fd = -1
        self.undone_bytes = 0
        self.needed_from: Callable[[], int] = lambda: sys.maxsize
        """Asked before a segment goes: the first number of the earliest one that somebody still reads."""
        self.unread = 0
        """Segments that had to go all the same."""
        # By name each time: the folder is opened anew where it was removed.
        self.unsynced = Unsynced("the intake journal", lambda: self._folder.again(), held)  # noqa: PLW0108
        for name in sorted(
            n for n in self._folder.names() if n.endswith(SUFFIX) and n.removesuffix(SUFFIX).isdecimal()
        ):
            self._load_safely(_Segment(int(name.removesuffix(SUFFIX))), now)

    # -- writing ----------------------------------------------------------------------------------

    def append(
        self, arrived_at: float, signal: Signal, encoding: Encoding, body: bytes, peer: Peer, *, now: float
    ) -> IntakeRecord | None:
        """Store a request with one write; None where the same bytes were stored in the last minutes.

        ``arrived_at`` is epoch seconds, ``now`` the same moment in monotonic ones.

        Raises Unavailable, with the file as it was, where it cannot be written.
        """
        digest = _digest(signal, encoding, body)
        if self._recent.has(digest, now):
            return None
        rq = max(self._last_rq + 1, int(arrived_at * 1000))
        record = IntakeRecord(rq, arrived_at, signal, encoding, peer, body)
        head, _ = intake_record.encode_request(record)
        segment = self._write(head, body, first=rq)
        offset = segment.size - len(head) - len(body)
        self._note(_Place(segment, offset, segment.size), record, digest, now)
        return record

    def done(self, rq: int) -> None:
        """All items of ``rq`` are in traces; unknown and repeated numbers are ignored."""
        if rq not in self._home:
            return
        self._write(intake_record.encode_done(rq), b"", first=self._last_rq + 1)
        self._settle(rq)

    def drop(self, now: float) -> int:
        """Remove segments that are wholly done and older than 10 minutes, or too many; returns how many."""
        dropped = 0
        while len(self._segments) > 1:
            oldest = self._segments[0]
            unread = oldest.first >= self.needed_from()
            wanted = unread or oldest.newest > now - KEEP_S
            if oldest.undone or (wanted and len(self._segments) <= KEEP_SEGMENTS):
                break
            if oldest.written > self.unsynced.durable:
                break  # after a failed sync it is written again
            try:
                self._folder.remove(oldest.name)
            except (Unavailable, PermissionError) as error:  # a folder in its place, or made immutable
                log.warning("intake segment %s is forgotten, and stays as it is: %s", oldest.name, error)
            except OSError:
                break  # a read-only disk, for one: whoever writes to it says so
            del self._segments[0]
            self.unread += unread
            dropped += 1
        return dropped

    def close(self) -> None:
        """Close the journal's file and folder."""
        self._close_file()
        self._folder.close()

    # -- reading ----------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        """The greatest number given so far."""
        return self._last_rq

    @property
    def undone(self) -> int:
        """Requests whose items are not all in traces yet."""
        return len(self._home)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    def pending(self) -> list[int]:
        """The numbers of the requests that are not done, oldest first."""
        return list(self._home)

    def read(self, rq: int) -> IntakeRecord:
        """A request that is not done. Raises Damaged, or OSError where it cannot be read."""
        segment, offset, end = self._home[rq]
        fd = self._folder.open_file(segment.name, os.O_RDONLY)
        try:
            data = os.pread(fd, end - offset, offset)
        finally:
            os.close(fd)
        _, record = intake_record.decode(memoryview(data), self._path(segment), offset)
        if not isinstance(record, IntakeRecord):
            raise Damaged("not the request it was", path=self._path(segment), offset=offset)
        return record

    # -- inside -----------------------------------------------------------------------------------

    def _load_safely(self, segment: _Segment, now: float) -> None:
        """One bad segment costs nobody else: it stays as it is, and is said."""
        self._segments.append(segment)
        self._last_rq = max(self._last_rq, segment.first - 1)
        try:
            self._load(segment, now)
        except (OSError, Unavailable) as error:
            segment.closed = True
            log.error("intake segment %s stays as it is: %s", segment.name, error)  # noqa: TRY400

    def _load(self, segment: _Segment, now: float) -> None:
        good = 0
        try:
            for placed in intake_record.read(self._mapped(segment), self._path(segment)):
                good = placed.end
                record = placed.record
                if isinstance(record, IntakeRecord):
                    digest = _digest(record.signal, record.encoding, record.body)
                    self._note(_Place(segment, placed.offset, placed.end), record, digest, now)
                else:
                    self._settle(record.rq)
        except Damaged as damage:
            segment.size = good = damage.offset
            log.warning("intake segment %s: what follows byte %d goes to quarantine", segment.name, good)
            self._cut(segment, good)
        segment.size = good

    def _cut(self, segment: _Segment, good: int) -> None:
        fd = self._folder.open_file(segment.name, os.O_RDWR)
        try:
            torn = os.pread(fd, os.fstat(fd).st_size - good, good)
            if torn:
                self._quarantine(segment.name, torn)
            os.ftruncate(fd, good)
        finally:
            os.close(fd)

    def _mapped(self, segment: _Segment) -> memoryview:
        fd = self._folder.open_file(segment.name, os.O_RDONLY)
        try:
            if os.fstat(fd).st_size == 0:
                return memoryview(b"")
            # Unmapped with its last view: closing it under a reader is an error.
            return memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
        finally:
            os.close(fd)

    def _path(self, segment: _Segment) -> str:
        return f"{self._folder.path}/{segment.name}"

    def _note(self, place: _Place, record: IntakeRecord, digest: bytes, now: float) -> None:
        segment = place.segment
        segment.undone.add(record.rq)
        segment.newest = now
        self._home[record.rq] = place
        self.undone_bytes += place.end - place.offset
        self._last_rq = max(self._last_rq, record.rq)
        self._recent.add(digest, now)

    def _settle(self, rq: int) -> None:
        place = self._home.pop(rq, None)
        if place is not None:
            place.segment.undone.discard(rq)
            self.undone_bytes -= place.end - place.offset

    def _write(self, head: bytes, body: bytes, *, first: int) -> _Segment:
        self.unsynced.admit()
        segment = self._current(first)
        try:
            segment, fd = self._untouched(segment)
            try:
                if segment.size == 0:
                    write_all(fd, MAGIC)
                    self._wrote(segment, MAGIC)
                    self.unsynced.made_in()
                written = os.writev(fd, (head, body))
                if written < len(head) + len(body):
                    write_all(fd, (head + body)[written:])
            except OSError:
                self._torn = True
                self._cut_back(fd, segment)
                raise
        except OSError as error:
            raise Unavailable(
                f"cannot write {self._path(segment)}: {error.strerror}", hint="free space or repair the disk"
            ) from error
        self._wrote(segment, head)
        self._wrote(segment, body)
        return segment

    def _wrote(self, segment: _Segment, data: bytes) -> None:
        self.unsynced.wrote(segment.name, segment.size, data)
        segment.size += len(data)
        segment.written = self.unsynced.written

    def _current(self, first: int) -> _Segment:
        """The segment to append to; a new one where there is none or the last is closed."""
        last = self._segments[-1] if self._segments else None
        if last is not None and not last.closed and last.size < self._segment_bytes:
            return last
        self._close_file()
        if last is not None:
            last.closed = True
            first = max(first, last.first + 1)
        segment = _Segment(first)
        self._segments.append(segment)
        return segment

    def _untouched(self, segment: _Segment) -> tuple[_Segment, int]:
        """The segment's file, ending where we left it; another segment where somebody has changed it."""
        fd = self._file(segment)
        if self._torn:
            self._cut_back(fd, segment)
        found = os.fstat(fd)
        if found.st_nlink and found.st_size == segment.size:
            return segment, fd
        log.warning("intake segment %s was removed or changed under us: a new one follows", segment.name)
        segment.closed = True
        segment = self._current(segment.first + 1)
        return segment, self._file(segment)

    def _cut_back(self, fd: int, segment: _Segment) -> None:
        """Take back what a failed write has left."""
        if os.fstat(fd).st_size > segment.size:
            os.ftruncate(fd, segment.size)
        self._torn = False

    def _file(self, segment: _Segment) -> int:
        if self._fd < 0:
            try:
                self._fd = self._folder.open_append(segment.name)
            except FileNotFoundError:  # the folder was removed
                self._folder.close()
                self._folder = self._open_folder()
                self._fd = self._folder.open_append(segment.name)
        return self._fd

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _digest(signal: Signal, encoding: Encoding, body: bytes) -> bytes:
    digest = blake2b(f"{signal}/{encoding}/".encode(), digest_size=16)
    digest.update(body)
    return digest.digest()
