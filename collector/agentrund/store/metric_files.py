"""Where metric points lie: metrics.jsonl of a run, up to a bound, and in the state folder those of no run.

Both only grow by whole lines. They are no part of what makes a run: whatever somebody does to such a file,
it is gone on with as it is then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from agentrund.formats import layout, metric_lines
from agentrund.model.errors import RunUnusable, Unavailable
from agentrund.store.append_file import AppendFile, Quarantine
from agentrund.store.folder import Folder
from agentrund.store.open_files import OpenFiles
from agentrund.store.unsynced import Held, Unsynced

RUN_BYTES: Final = 32 << 20
"""Of one run: some 70,000 points."""
STRAY_BYTES: Final = 16 << 20
"""Of one segment of points of no run;"""
STRAY_SEGMENTS: Final = 4
"""so many of them are kept, the newest."""

_SUFFIX: Final = ".jsonl"
_READ: Final = 1 << 18
_TAIL: Final = 512
"""Bytes in which the last line of a full file lies."""


def origins(folder: Folder, name: str = layout.METRICS) -> Iterator[tuple[int, int]]:
    """Request and item of every whole line of a file; of none where there is no such file.

    Raises OSError, or Unavailable where it is no plain file.
    """
    try:
        fd = folder.open_file(name, os.O_RDONLY)
    except FileNotFoundError:
        return
    with open(fd, "rb", buffering=_READ) as file:  # noqa: PTH123 - a descriptor, not a path
        for line in file:
            if (origin := metric_lines.source_of(line)) is not None:
                yield origin


class _Lines:
    """A file of lines. Raises OSError where it cannot be looked at, Unavailable where it is no plain file."""

    def __init__(
        self,
        folder: Callable[[], Folder],
        name: str,
        key: str,
        files: OpenFiles,
        *,
        unsynced: Unsynced,
        quarantine: Quarantine,
    ) -> None:
        self._folder = folder
        self._name = name
        self._unsynced = unsynced
        self._quarantine = quarantine
        self._file = AppendFile(folder, name, key, files)
        self._file.repair_tail(quarantine)
        self.queued = 0

    @property
    def size(self) -> int:
        """Bytes of the file, with those that are queued."""
        return self._file.size + self.queued

    def add(self, line: bytes) -> None:
        """Queue a line."""
        self._file.add(line)
        self.queued += len(line)

    def take_back(self) -> bytes:
        """What is queued, which is queued no more."""
        self.queued = 0
        return self._file.take_back()

    def commit(self) -> None:
        """Write what is queued.

        Raises, with the queue kept, Unavailable where the disk refuses, RunUnusable where there is no such
        folder any more, or something in the file's place.
        """
        if not self._file.pending:
            return
        self._unsynced.admit()
        try:
            self._write()
        except RunUnusable:
            self._take_as_it_is()
            self._write()
        except Unavailable as error:
            if self._is_plain():
                raise
            raise RunUnusable(error.message, hint=error.hint) from error

    def _take_as_it_is(self) -> None:
        """Somebody has changed the file: what there is now is gone on with."""
        lines = self._file.take_back()
        try:
            self._file.reopen()
            self._file.repair_tail(self._quarantine)
        except Unavailable as error:
            raise RunUnusable(error.message, hint=error.hint) from error
        except OSError as error:
            raise Unavailable(
                f"cannot repair {self._name}: {error.strerror}", hint="look at the disk"
            ) from error
        finally:
            self._file.add(lines)

    def _write(self) -> None:
        offset = self._file.size
        self._unsynced.wrote(self._name, offset, self._file.commit())
        self.queued = 0
        if offset == 0:
            self._unsynced.made_in()

    def _is_plain(self) -> bool:
        try:
            with self._folder() as folder:
                folder.size(self._name)
        except Unavailable:
            return False
        except OSError:
            return True
        return True

    def last_line(self) -> bytes:
        """The end of what is written, from the last line on, of short ones."""
        try:
            with self._folder() as folder:
                fd = folder.open_file(self._name, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            end = self._file.size
            tail = os.pread(fd, min(_TAIL, end), max(0, end - _TAIL))
        finally:
            os.close(fd)
        return tail[tail.rfind(b"\n", 0, len(tail) - 1) + 1 :]

    def write_last(self, line: bytes) -> None:
        """Write over the last line with one as long. Raises Unavailable where the disk refuses."""
        offset = self._file.size - len(line)
        try:
            with self._folder() as folder:
                fd = folder.open_file(self._name, os.O_WRONLY)
            try:
                os.pwrite(fd, line, offset)
            finally:
                os.close(fd)
        except OSError as error:
            raise Unavailable(
                f"cannot write {self._name}: {error.strerror}", hint="look at the disk"
            ) from error
        self._unsynced.wrote(self._name, offset, line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class RunMetrics:
    """metrics.jsonl of a run. What does not fit is counted in its last line."""

    def __init__(
        self,
        run_id: str,
        folder: Callable[[], Folder],
        files: OpenFiles,
        held: Held,
        *,
        quarantine: Quarantine,
        limit: int = RUN_BYTES,
    ) -> None:
        """Raises OSError where the file cannot be looked at, Unavailable where it is no plain file."""
        self.run_id = run_id
        self.unsynced = Unsynced(f"metrics of {run_id}", folder, held)
        self.described: set[str] = set()
        """Sources whose resource is in it, by what this process has written."""
        self._limit = limit
        key = f"{layout.run_dir(run_id)}/{layout.METRICS}"
        self._lines = _Lines(
            folder, layout.METRICS, key, files, unsynced=self.unsynced, quarantine=quarantine
        )
        counted = metric_lines.left_out(self._lines.last_line())
        self._full = counted is not None
        self._left_out = self._counted = counted or 0

    def add(self, line: bytes) -> None:
        """Queue a line, or count it where there is no room."""
        if self._full or self._lines.size + len(line) > self._limit:
            self._left_out += 1
        else:
            self._lines.add(line)

    def take_back(self) -> bytes:
        """What is queued, which is queued no more."""
        return self._lines.take_back()

    def commit(self) -> None:
        """Write what is queued. Raises Unavailable or RunUnusable, with the queue kept."""
        self._lines.commit()
        if self._left_out == self._counted:
            return
        line = metric_lines.encode_full(self.run_id, self._left_out)
        if self._full and metric_lines.left_out(self._lines.last_line()) is not None:
            self._lines.write_last(line)
        else:
            # Queued it is there, also where the disk refuses it now: at the next try it is written over.
            self._full = True
            self._lines.add(line)
            self._lines.commit()
        self._counted = self._left_out

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


class StrayMetrics:
    """Points of no run, in a few segments. They are named so that they sort by age."""

    def __init__(
        self,
        folder: Callable[[], Folder],
        files: OpenFiles,
        held: Held,
        *,
        quarantine: Quarantine,
        segment_bytes: int = STRAY_BYTES,
    ) -> None:
        """``folder`` opens the folder they lie in, made where it is missing."""
        self.unsynced = Unsynced("metrics of no run", folder, held)
        self.described: set[str] = set()
        """Sources whose resource is in the segment."""
        self._folder = folder
        self._files = files
        self._quarantine = quarantine
        self._segment_bytes = segment_bytes
        self._lines: _Lines | None = None

    def make_room(self, rq: int) -> None:
        """Before each line, of request ``rq``: choose its segment. Raises OSError or Unavailable."""
        if self._lines is not None and self._lines.size >= self._segment_bytes:
            self.commit()
            self._lines = None
        if self._lines is None:
            self._lines = self._begin(rq)

    def add(self, line: bytes) -> None:
        """Queue a line."""
        assert self._lines is not None
        self._lines.add(line)

    def _begin(self, rq: int) -> _Lines:
        """The newest segment, or one more where that is full, and the oldest gone."""
        with self._folder() as folder:
            names = _segments(folder)
            if not names or not _has_room(folder, names[-1], self._segment_bytes):
                newest = int(names[-1].removesuffix(_SUFFIX)) if names else 0
                names.append(f"{max(rq, newest + 1):016d}{_SUFFIX}")
                self.described.clear()
            for old in names[:-STRAY_SEGMENTS]:
                with suppress(Unavailable):
                    folder.remove(old)
        key = f"{layout.STATE}/{layout.STRAY_METRICS}/{names[-1]}"
        return _Lines(
            self._folder,
            names[-1],
            key,
            self._files,
            unsynced=self.unsynced,
            quarantine=self._quarantine,
        )

    def commit(self) -> None:
        """Write what is queued. Raises OSError or Unavailable, with the queue kept."""
        if self._lines is None:
            return
        try:
            self._lines.commit()
        except RunUnusable:
            # Something lies in its place: the lines go into the next one.
            self._lines, former = self._begin(0), self._lines
            self._lines.add(former.take_back())
            self._lines.commit()

    def origins(self) -> Iterator[tuple[int, int]]:
        """Request and item of every line; something in the place of a segment has none. Raises OSError."""
        with self._folder() as folder:
            for name in _segments(folder):
                with suppress(Unavailable):
                    yield from origins(folder, name)

    def close(self) -> None:
        """Close the file."""
        if self._lines is not None:
            self._lines.close()


def _segments(folder: Folder) -> list[str]:
    """The segments in a folder, oldest first."""
    return sorted(n for n in folder.names() if n.endswith(_SUFFIX) and n.removesuffix(_SUFFIX).isdecimal())


def _has_room(folder: Folder, name: str, limit: int) -> bool:
    """Whether a segment is a plain file, and not full."""
    try:
        return folder.size(name) < limit
    except (Unavailable, FileNotFoundError):
        return False
