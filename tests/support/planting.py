"""What somebody may plant in the place of a file, and proof that nothing outside was touched."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class Outside:
    """A file and a folder beside the root that nobody may touch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "outside"
        self.inner = self.folder / "inner"
        self.inner.mkdir(parents=True)
        self.file = self.folder / "canary.txt"
        self.file.write_text("kept to itself\n")
        (self.inner / "inside.txt").write_text("inside\n")
        self.file.chmod(0o644)
        self._before = listing(self.folder)

    def untouched(self) -> bool:
        """Whether content, names, modes, owners and times are what they were."""
        return listing(self.folder) == self._before


def listing(folder: Path) -> dict[str, tuple]:
    """All that a look from outside tells of a folder. Link counts are the planter's own."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        info = path.lstat()
        content = ""
        if stat.S_ISREG(info.st_mode):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        elif stat.S_ISLNK(info.st_mode):
            content = os.readlink(path)
        found[str(path.relative_to(folder))] = (
            info.st_mode,
            info.st_uid,
            info.st_gid,
            info.st_mtime_ns,
            content,
        )
    return found


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


PLANTS: dict[str, Callable[[Path, Outside], None]] = {
    "link to a file": lambda path, outside: path.symlink_to(outside.file),
    "link to a folder": lambda path, outside: path.symlink_to(outside.inner),
    "dangling link": lambda path, outside: path.symlink_to(outside.folder / "new"),
    "hard link": lambda path, outside: path.hardlink_to(outside.file),
    "fifo": lambda path, outside: os.mkfifo(path),
    "folder": lambda path, outside: path.mkdir(),
    "file": lambda path, outside: path.write_text("planted"),
    "looping link": lambda path, outside: path.symlink_to(path.name),
    "socket": lambda path, outside: os.mknod(path, stat.S_IFSOCK | 0o600),
}
if os.geteuid() == 0:
    PLANTS |= {
        "endless device": lambda path, outside: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5)),
        "full device": lambda path, outside: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 7)),
        "block device": lambda path, outside: os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(7, 250)),
    }


def plant(path: Path, what: str, outside: Outside) -> None:
    """Put ``what`` in the place of whatever is at ``path``."""
    _clear(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    PLANTS[what](path, outside)


def swap(path: Path, what: str, outside: Outside) -> None:
    """``what`` in the place of whatever is at ``path`` for a moment; that comes back afterwards.

    Whoever works there meanwhile may be quicker than we are: then there is nothing to take back.
    """
    away = path.with_name(f"{path.name}.away")
    with suppress(OSError):
        path.rename(away)
    with suppress(OSError):
        PLANTS[what](path, outside)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    with suppress(OSError):
        away.rename(path)
