"""Opening a root for reading: which folder it is, and how a file below it is opened.

Every component below the root is opened relative to its parent and never followed, so a planted link
or FIFO is an error, not a way out of the root. Nothing here writes or knows what the files mean.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from agentrund.formats import layout
from agentrund.model.errors import Damaged, NoSuchRun, UsageError

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_NAMES: Final = frozenset({"", ".", ".."})
_NO_ROOT: Final = "name the root with --root or AGENTRUND_ROOT, or start `agentrund serve` here"


class Root:
    """A folder of runs, for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, relative: str) -> BinaryIO:
        """Open a file below the root. Raises FileNotFoundError; Damaged where it is no plain file."""
        above, _, name = relative.rpartition("/")
        if name in _NO_NAMES:
            raise self._damaged(relative, "leaves its folder")
        with self.folder(above) as at:
            try:
                fd = os.open(name, _FILE, dir_fd=at)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise self._damaged(relative, error.strerror or "cannot be opened") from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise self._damaged(relative, "not a plain file")
        return os.fdopen(fd, "rb")

    @contextmanager
    def folder(self, relative: str = "") -> Iterator[int]:
        """The descriptor of a folder below the root, or of the root itself.

        Raises FileNotFoundError; Damaged where it is no folder.
        """
        folders = relative.split("/") if relative else []
        if not _NO_NAMES.isdisjoint(folders):
            raise self._damaged(relative, "leaves its folder")
        at = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                for folder in folders:
                    below = os.open(folder, _FOLDER, dir_fd=at)
                    os.close(at)
                    at = below
            except FileNotFoundError:
                raise
            except OSError as error:
                raise self._damaged(relative, error.strerror or "cannot be opened") from error
            yield at
        finally:
            os.close(at)

    def _damaged(self, relative: str, why: str) -> Damaged:
        return Damaged(
            why,
            path=str(self.path / relative),
            offset=0,
            hint="look who put it there, and at its permissions",
        )

    def read(self, relative: str) -> bytes:
        """A whole file below the root. Raises as ``open`` does."""
        with self.open(relative) as file:
            return file.read()

    def has_run(self, run_id: str) -> bool:
        """Whether ``run_id`` is the name of a run's folder."""
        if not run_id or "/" in run_id or "\0" in run_id or run_id.startswith("."):
            return False
        try:
            with self.folder(layout.RUNS) as runs:
                return stat.S_ISDIR(os.stat(run_id, dir_fd=runs, follow_symlinks=False).st_mode)
        except (OSError, Damaged):
            return False

    def run_ids(self) -> list[str]:
        """The names of all runs' folders, newest first."""
        try:
            with self.folder(layout.RUNS) as runs, os.scandir(runs) as entries:
                found = [
                    e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")
                ]
        except FileNotFoundError:
            return []
        return sorted(found, reverse=True)

    def link(self, relative: str) -> str | None:
        """The run a link of the root points at; None where there is none, or it points elsewhere."""
        above, _, name = relative.rpartition("/")
        try:
            with self.folder(above) as at:
                target = os.readlink(name, dir_fd=at)
        except (OSError, Damaged):
            return None
        run_id = target.rsplit("/", 1)[-1]
        return run_id if self.has_run(run_id) else None


def find_root(named: Path | None, here: Path, collector: Callable[[], Path | None]) -> Root:
    """The root a reading command works on.

    ``named`` comes from a flag, a variable or a file; else ``here/.runs`` if it is there; else the root
    of the collector that ``collector`` finds. Raises UsageError or NoSuchRun.
    """
    if named is not None:
        if not named.is_dir():
            raise UsageError(f"{named}: no such folder", hint=_NO_ROOT)
        return Root(named)
    local = here / ".runs"
    if local.is_dir():
        return Root(local)
    other = collector()
    if other is None or not other.is_dir():
        raise NoSuchRun("no runs here and no collector running", hint=_NO_ROOT)
    return Root(other)
