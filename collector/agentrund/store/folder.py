"""Folders by descriptor: every name below the root is opened relative to its parent, never followed.

A planted symbolic link, FIFO or hard link is an error here, not a way out of the root (CWE-59).
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from agentrund.model.errors import Unavailable
from agentrund.store.descriptors import with_reserve

_NOT_A_FILE: Final = frozenset({errno.ELOOP, errno.EISDIR, errno.ENXIO})
_NO_FOLDER_SYNC: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})
"""From file systems that sync files and know no sync of a folder (shared and FUSE ones)."""
_SAFE_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Modes:
    """What is made in a folder gets these modes, less the process's umask."""

    folder: int = 0o700
    file: int = 0o600


PRIVATE: Final = Modes()
SHARED: Final = Modes(0o750, 0o640)
"""For the folder's group to read."""


class SyncFailedError(OSError):
    """Data did not reach the disk; what a later sync says of it proves nothing."""


class Folder:
    """An open directory. Close it, or use it as a context manager. Folders in it have its ``modes``."""

    def __init__(self, fd: int, path: str, modes: Modes = PRIVATE) -> None:
        self.fd = fd
        self.path = path
        self.modes = modes

    @classmethod
    def root(cls, path: Path, modes: Modes = PRIVATE) -> Self:
        """Open the root, made (0700) where it is missing. The root's own path may hold links."""
        path.mkdir(mode=PRIVATE.folder, parents=True, exist_ok=True)
        return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), str(path), modes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)

    def sub(self, name: str) -> Folder:
        """Open a folder in this one. Raises FileNotFoundError, or NotADirectoryError for a link."""
        fd = with_reserve(lambda: os.open(name, os.O_RDONLY | os.O_DIRECTORY | _SAFE_FLAGS, dir_fd=self.fd))
        return Folder(fd, f"{self.path}/{name}", self.modes)

    def make(self, name: str) -> Folder:
        """Open a folder in this one, made where it is missing."""
        with suppress(FileExistsError):
            self.make_new(name)
        return self.sub(name)

    def make_private(self, name: str) -> Folder:
        """As ``make``, closed to the group whatever this folder is."""
        with suppress(FileExistsError):
            os.mkdir(name, PRIVATE.folder, dir_fd=self.fd)
        folder = self.sub(name)
        folder.modes = PRIVATE
        return folder

    def make_new(self, name: str) -> None:
        """Make a folder that must not exist yet. Raises FileExistsError."""
        os.mkdir(name, self.modes.folder, dir_fd=self.fd)

    def share(self, gid: int) -> None:
        """Open this folder to a group; what is made in it from now on belongs to that group too."""
        os.fchown(self.fd, -1, gid)
        os.fchmod(self.fd, self.modes.folder | stat.S_ISGID)

    def share_file(self, name: str, gid: int) -> None:
        """Open a file to a group, where there is one. Raises Unavailable as ``open_file`` does."""
        with suppress(FileNotFoundError):
            fd = self.open_file(name, os.O_RDONLY)
            try:
                os.fchown(fd, -1, gid)
                os.fchmod(fd, self.modes.file)
            finally:
                os.close(fd)

    def open_file(self, name: str, flags: int) -> int:
        """Open a regular file with one link; ``flags`` as for ``os.open``. Raises Unavailable otherwise."""
        try:
            fd = with_reserve(lambda: os.open(name, flags | _SAFE_FLAGS, self.modes.file, dir_fd=self.fd))
        except OSError as error:
            if error.errno in _NOT_A_FILE:
                raise self._not_plain(name) from error
            raise
        info = os.fstat(fd)
        if stat.S_ISREG(info.st_mode) and info.st_nlink == 1:
            return fd
        os.close(fd)
        raise self._not_plain(name)

    def _not_plain(self, name: str) -> Unavailable:
        return Unavailable(
            f"{self.path}/{name} is not a plain file of our own (link, folder, FIFO or device)",
            hint="look who put it there, then remove it",
        )

    def open_append(self, name: str, *, new: bool = True) -> int:
        """Open a file for appending and reading; with ``new`` it is made where it is missing."""
        return self.open_file(name, os.O_RDWR | os.O_APPEND | (os.O_CREAT if new else 0))

    def has(self, name: str, size: int) -> bool:
        """Whether there is something of that name and size."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_size == size
        except OSError:
            return False

    def size(self, name: str) -> int:
        """Bytes of a plain file. Raises FileNotFoundError, or Unavailable where it is something else."""
        fd = self.open_file(name, os.O_RDONLY)
        try:
            return os.fstat(fd).st_size
        finally:
            os.close(fd)

    def read(self, name: str) -> bytes:
        """A whole file. Raises FileNotFoundError."""
        fd = self.open_file(name, os.O_RDONLY)
        with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            return file.read()

    def again(self) -> Folder:
        """The same folder by a descriptor of its own."""
        return Folder(with_reserve(partial(os.dup, self.fd)), self.path, self.modes)

    def sync(self, name: str, again: Iterable[tuple[int, bytes]] = ()) -> None:
        """Put a file's data on stable storage, after writing ``again``, bytes at their offsets.

        Raises SyncFailedError where the disk says no.
        """
        fd = self.open_file(name, os.O_WRONLY)
        try:
            for offset, data in again:
                _write_at(fd, data, offset)
            _asked(os.fdatasync, fd)
        finally:
            os.close(fd)

    def sync_entries(self) -> None:
        """Put the names in this folder on stable storage, where its file system knows of that.

        Raises SyncFailedError where the disk says no.
        """
        try:
            _asked(os.fsync, self.fd)
        except SyncFailedError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise

    def replace(self, name: str, data: bytes) -> None:
        """Write a file whole or not at all: a temporary neighbour, then a rename."""
        temporary = f".{name}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            fd = self.open_file(temporary, flags)
        except FileExistsError:
            self.remove(temporary)  # of a writer that was killed, or planted
            fd = self.open_file(temporary, flags)
        try:
            write_all(fd, data)
        finally:
            os.close(fd)
        self.move_over(temporary, name)

    def move_over(self, temporary: str, name: str) -> None:
        """Put a finished file or link in the place of ``name``. Raises Unavailable where that is a folder."""
        try:
            os.rename(temporary, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except IsADirectoryError as error:
            raise self._not_plain(name) from error

    def link(self, name: str, target: str) -> None:
        """Point a symbolic link at a relative ``target``, atomically replacing the one that is there."""
        temporary = f".{name[:200]}.new"
        try:
            os.symlink(target, temporary, dir_fd=self.fd)
        except FileExistsError:
            self.remove(temporary)
            os.symlink(target, temporary, dir_fd=self.fd)
        self.move_over(temporary, name)

    def link_target(self, name: str) -> str | None:
        """Where a symbolic link points, None where there is none."""
        try:
            return os.readlink(name, dir_fd=self.fd)
        except OSError:
            return None

    def remove(self, name: str) -> None:
        """Remove a file or link, missing or not. Raises Unavailable where it is a folder."""
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            return
        except IsADirectoryError as error:
            raise self._not_plain(name) from error

    def names(self) -> list[str]:
        """What lies in it, unsorted."""
        return os.listdir(self.fd)  # noqa: PTH208 - a descriptor, not a path


def sync_file_system(folder: Folder) -> None:
    """Put everything on stable storage that the file system of ``folder`` still has to write.

    Raises SyncFailedError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(folder.fd):
        number = ctypes.get_errno()
        raise SyncFailedError(number, os.strerror(number))


def _asked(sync: Callable[[int], None], fd: int) -> None:
    try:
        sync(fd)
    except OSError as error:
        raise SyncFailedError(error.errno, error.strerror) from error


def _write_at(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of ``data``, however short the single writes. Raises OSError with part of it written."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
