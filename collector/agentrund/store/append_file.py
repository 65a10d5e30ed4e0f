"""A file that only grows, one whole line after another, and is never left torn.

Lines are queued and written with one ``write``; a write that fails part-way (disk full, I/O error) is cut
back to the last good line, and the queue stays for the next try. A tail torn by a kill is moved to
quarantine on opening, before anything new is written (a single write was torn in up to 80 % of kills).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from agentrund.model.errors import Unavailable
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
        self.size = 0 if new else self._length()

    def _length(self) -> int:
        try:
            return os.fstat(self._fd()).st_size
        except FileNotFoundError:
            return 0

    def _fd(self) -> int:
        return self._files.get(self._key, self._open)

    def _open(self) -> int:
        with self._folder() as folder:
            return folder.open_append(self._name)

    @property
    def modified(self) -> float:
        """When it was last written, epoch seconds."""
        return os.fstat(self._fd()).st_mtime

    def add(self, data: bytes) -> None:
        """Queue whole lines for the next ``commit``."""
        self._queue.append(data)

    @property
    def pending(self) -> bool:
        """Whether something waits for a commit."""
        return bool(self._queue)

    def commit(self) -> None:
        """Write the queue. Raises Unavailable, with the file as it was and the queue kept, on any failure."""
        if not self._queue:
            return
        data = self._queue[0] if len(self._queue) == 1 else b"".join(self._queue)
        try:
            fd = self._fd()
            try:
                write_all(fd, data)
            except OSError:
                os.ftruncate(fd, self.size)
                raise
        except OSError as error:
            raise Unavailable(
                f"cannot write {self._key}: {error.strerror}", hint="free space or repair the disk"
            ) from error
        self.size += len(data)
        self._queue.clear()

    def whole_lines(self) -> int:
        """Bytes up to and with the last newline: what follows is a torn tail."""
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
