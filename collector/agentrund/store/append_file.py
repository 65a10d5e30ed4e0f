"""A file that only grows, one whole line after another, and is never left torn.

Lines are queued and written with one ``write``; a write that fails part-way (disk full, I/O error) is cut
back to the last good line, now or before the next write, and the queue stays for the next try. A tail torn
by a kill is moved to quarantine on opening, before anything new is written (a single write was torn in up to
80 % of kills). A file that was removed, cut or written to by somebody else is noticed before the next write.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from agentrund.model.errors import RunUnusable, Unavailable
from agentrund.store.folder import Folder, write_all
from agentrund.store.open_files import OpenFiles

_CHUNK: Final = 1 << 16

Quarantine = Callable[[str, bytes], None]
"""Keeps bytes that were cut off a file: called with a name and the bytes."""


class AppendFile:
    """One append-only file of a folder, opened when needed through ``files``."""

    def __init__(
        self, folder: Callable[[], Folder], name: str, key: str, files: OpenFiles, *, new: bool = False
    ) -> None:
        """``new``: there is no such file yet; it is made with the first line."""
        self._folder = folder
        self._name = name
        self._key = key
        self._files = files
        self._queue: list[bytes] = []
        self.pending_bytes = 0
        """How much waits for a commit."""
        self._torn = False
        self.size = 0
        if not new:
            self.reopen()

    def _fd(self) -> int:
        return self._files.get(self._key, self._open)

    def _open(self) -> int:
        with self._folder() as folder:
            # A file we have written to is never made a second time: it would begin in the middle.
            return folder.open_append(self._name, new=self.size == 0)

    def reopen(self) -> None:
        """Take the file as it is now, whatever was known of it; what is queued is forgotten."""
        self.forget()
        self.close()
        try:
            with self._folder() as folder:
                self.size = folder.size(self._name)
        except FileNotFoundError:
            self.size = 0

    def forget(self) -> None:
        """Drop what is queued."""
        self.take_back()
        self._torn = False

    def take_back(self) -> bytes:
        """What is queued, which is queued no more."""
        queued = b"".join(self._queue)
        self._queue.clear()
        self.pending_bytes = 0
        return queued

    @property
    def modified(self) -> float:
        """When it was last written, epoch seconds."""
        return os.fstat(self._fd()).st_mtime

    def add(self, data: bytes) -> None:
        """Queue whole lines for the next ``commit``."""
        self._queue.append(data)
        self.pending_bytes += len(data)

    @property
    def pending(self) -> bool:
        """Whether something waits for a commit."""
        return bool(self._queue)

    def commit(self) -> bytes:
        """Write the queue; returns what was written.

        On any failure the file is as it was, or is made so before the next write.
        Raises Unavailable, with the queue kept, where the disk refuses; RunUnusable where the file is not
        what we left.
        """
        if not self._queue:
            return b""
        data = self._queue[0] if len(self._queue) == 1 else b"".join(self._queue)
        try:
            fd = self._untouched()
            try:
                write_all(fd, data)
            except OSError:
                self._torn = True
                self._cut_back(fd)
                raise
        except FileNotFoundError as error:
            raise self._lost("removed") from error
        except OSError as error:
            raise Unavailable(
                f"cannot write {self._key}: {error.strerror}", hint="free space or repair the disk"
            ) from error
        self.size += len(data)
        self._queue.clear()
        self.pending_bytes = 0
        return data

    def _untouched(self) -> int:
        """The file, ending where we left it: a look before each write costs a few µs."""
        fd = self._fd()
        if self._torn:
            self._cut_back(fd)
        found = os.fstat(fd)
        if found.st_nlink == 0:
            raise self._lost("removed")
        if found.st_size != self.size:
            raise self._lost("cut" if found.st_size < self.size else "written to by somebody else")
        return fd

    def _cut_back(self, fd: int) -> None:
        """Take back what a failed write has left."""
        if os.fstat(fd).st_size > self.size:
            os.ftruncate(fd, self.size)
        self._torn = False

    def _lost(self, how: str) -> RunUnusable:
        return RunUnusable(
            f"{self._key} was {how} while it was being written",
            hint="only the collector may write to an open run",
        )

    def whole_lines(self) -> int:
        """Bytes up to and with the last newline: what follows is a torn tail."""
        if not self.size:
            return 0
        fd = self._fd()
        end = self.size
        while end > 0:
            start = max(0, end - _CHUNK)
            newline = os.pread(fd, end - start, start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
        return 0

    def repair_tail(self, quarantine: Quarantine) -> int:
        """Cut back to the last newline; what is cut goes to ``quarantine``. Returns the bytes cut."""
        good = self.whole_lines()
        torn = self.size - good
        if torn:
            quarantine(self._name, os.pread(self._fd(), torn, good))
            self.truncate(good)
        return torn

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        os.ftruncate(self._fd(), size)
        self.size = size

    def close(self) -> None:
        """Close the file; a later use opens it again."""
        self._files.drop(self._key)
