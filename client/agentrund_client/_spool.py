"""The file that catches lines while no collector can be reached, and gives them back when one can.

`<spool>/<source>.jsonl`: hello first, then the same lines the socket would have got, secrets masked. The
writer holds an flock for as long as it lives; a file whose lock is free belongs to a dead process and may
be handed in. The file always starts where the collector's `acked` ended, so it never has a hole that was
not admitted to.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

from agentrund_client._wire import last_number

# One read, one send: large enough to be rare, small enough to be quick.
CHUNK = 256 * 1024
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class Spool:
    """One source's spool file. Not thread-safe: the link's lock covers it."""

    def __init__(self, folder: str, source: str, hello: bytes, max_bytes: int) -> None:
        """Create the file, or go on with what this source left before; OSError where neither is possible."""
        make_private_folder(folder)
        self.path = f"{folder}/{source}.jsonl"
        self.last_n = 0
        self.size = 0
        self._max_bytes = max_bytes
        self._position = 0
        self._hole_first = 0
        self._hole_at = -1
        if not self._reopen():
            self._create(f"{folder}/.{source}.new", _redacted(hello))

    def append(self, n: int, line: bytes, *, must: bool = False) -> None:
        """Add one line. Over the bound, or with a full disk, the event is counted in a `lost` line instead.

        `must` lines (the run's end) may pass the bound. Raises nothing an agent could see as a file's fault.
        """
        try:
            line = _redacted(line)
            if must or self.size + len(line) <= self._max_bytes:
                self.close_hole()
                self._write_at(line)
                self.last_n = n
                return
        except (OSError, ValueError, RecursionError):
            pass
        self._lose(n)

    def close_hole(self) -> None:
        """What follows is written after the `lost` line; OSError where that line cannot be written either."""
        if self._hole_first and self._hole_at < 0:
            self._write_hole()
        self._hole_first, self._hole_at = 0, -1

    def rewind(self, acked: int) -> None:
        """Set the reading position to the first line that speaks for a number above `acked`."""
        self._position = 0
        while chunk := self.peek():
            for line in chunk.splitlines(keepends=True):
                if last_number(line) > acked:
                    return
                self._position += len(line)

    def peek(self) -> bytes:
        """Whole lines from the reading position, about CHUNK bytes or one line at least; empty at the end."""
        wanted = CHUNK
        while True:
            wanted = min(wanted, self.size - self._position)
            chunk = os.pread(self._fd, wanted, self._position)
            end = chunk.rfind(b"\n") + 1
            if end or not chunk or len(chunk) < wanted or wanted == self.size - self._position:
                return chunk[:end]
            wanted *= 4

    def advance(self, count: int) -> None:
        """Move the reading position past `count` bytes that were sent; a hole among them grows no more."""
        self._position += count
        if 0 <= self._hole_at < self._position:
            self._hole_first, self._hole_at = 0, -1

    @property
    def taken(self) -> bool:
        """Whether the collector has taken the file away: it reads and removes those of connected sources."""
        return os.fstat(self._fd).st_nlink == 0

    def lines(self, acked: int) -> Iterator[tuple[int, bytes]]:
        """Every line above `acked` with its number; moves the reading position."""
        self.rewind(acked)
        while chunk := self.peek():
            for line in chunk.splitlines(keepends=True):
                yield last_number(line), line
            self.advance(len(chunk))

    def close(self) -> None:
        """Give up the lock; whoever finds the file now may hand it in."""
        os.close(self._fd)

    def remove(self) -> None:
        """Everything in it is settled."""
        try:
            if not self.taken:
                os.unlink(self.path)  # noqa: PTH108
        except OSError:
            pass
        finally:
            self.close()

    def _create(self, path: str, hello: bytes) -> None:
        """Hello in it and locked before it gets its name: nobody takes it for an orphan meanwhile."""
        self._fd = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write_at(hello)
            os.link(path, self.path)  # unlike rename this never replaces a file that somebody is taking in
        except OSError:
            os.close(self._fd)
            raise
        finally:
            os.unlink(path)  # noqa: PTH108

    def _reopen(self) -> bool:
        """Go on with this source's file from before; False: there is none, or somebody is taking it in."""
        try:
            self._fd = os.open(self.path, _FLAGS)
        except FileNotFoundError:
            return False
        if not try_lock(self._fd) or self.taken:
            os.close(self._fd)
            return False
        self.size = os.fstat(self._fd).st_size
        for _, line in self.lines(0):
            self.last_n = max(self.last_n, last_number(line))
        self.size = self._position
        os.ftruncate(self._fd, self.size)  # a torn last line
        return True

    def _lose(self, n: int) -> None:
        """Count number `n` as lost.

        The count goes into the file at once, because a process that is killed now must not leave an
        unmarked hole.
        """
        self._hole_first = self._hole_first or n
        self.last_n = n
        try:
            self._write_hole()
        except OSError:
            return

    def _write_hole(self) -> None:
        """The `lost` line of the open hole, of fixed width: it is kept up to date in place."""
        line = b'{"op":"lost","from":%20d,"to":%20d}\n' % (self._hole_first, self.last_n)
        if self._hole_at < 0:
            at = self.size
            self._write_at(line)
            self._hole_at = at
        else:
            os.pwrite(self._fd, line, self._hole_at)

    def _write_at(self, line: bytes) -> None:
        """Write at the end, all or nothing."""
        done = 0
        try:
            while done < len(line):
                done += os.pwrite(self._fd, line[done:], self.size + done)
        except OSError:
            os.ftruncate(self._fd, self.size)
            raise
        self.size += len(line)


def _redacted(line: bytes) -> bytes:
    from agentrund_client.redact import redact_line  # noqa: PLC0415 - its patterns take 5 ms to compile

    return redact_line(line)


def make_private_folder(folder: str) -> None:
    """Create the folder with mode 0700; PermissionError where it exists and belongs to somebody else."""
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    found = os.stat(folder)  # noqa: PTH116
    if found.st_uid != os.getuid():
        raise PermissionError(f"spool folder belongs to uid {found.st_uid}: {folder}")
    if found.st_mode & 0o077:
        os.chmod(folder, 0o700)  # noqa: PTH101


def try_lock(fd: int) -> bool:
    """Take the file's lock without waiting; False while its owner lives."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
