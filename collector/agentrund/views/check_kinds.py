"""What stands beside the runs under a name of the collector's: a folder, a plain file or a link, as is right.

Whatever else was put there stops the collector at its next start, or is refused when it is met.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from agentrund.formats import layout
from agentrund.model.errors import Damaged
from agentrund.views.finding import Finding
from agentrund.views.folder import Root

_FOLDER: Final = (stat.S_IFDIR, "folder")
_FILE: Final = (stat.S_IFREG, "plain file")
_LINK: Final = (stat.S_IFLNK, "symbolic link")
_KINDS: Final = {
    "": {
        layout.STATE: _FOLDER,
        f".{layout.INDEX}.new": _FILE,
        f".{layout.NAVIGATE}.new": _FILE,
        f".{layout.LATEST}.new": _LINK,
    },
    layout.STATE: {
        layout.LOCK: _FILE,
        layout.INTAKE: _FOLDER,
        layout.QUARANTINE: _FOLDER,
        layout.STRAY_METRICS: _FOLDER,
        layout.WIRE: _FILE,
        f".{layout.WIRE}.new": _FILE,
    },
}
_CONTENT: Final = (
    (layout.SESSIONS, ".", _LINK),
    (f"{layout.STATE}/{layout.INTAKE}", "", _FILE),
    (f"{layout.STATE}/{layout.STRAY_METRICS}", "", _FILE),
)
"""Folders in which everything that begins so is of one kind."""
_HINT: Final = "look who put it there, then remove it"


def check_kinds(root: Root) -> Iterator[Finding]:
    """Everything that is not what its name says. A folder that may not be read is not looked into."""
    for folder, names in _KINDS.items():
        with suppress(OSError, Damaged), root.folder(folder) as at:
            yield from _look(root, folder, at, names)
    for folder, prefix, kind in _CONTENT:
        with suppress(OSError, Damaged), root.folder(folder) as at:
            found = sorted(name for name in os.listdir(at) if name.startswith(prefix))  # noqa: PTH208
            yield from _look(root, folder, at, dict.fromkeys(found, kind))


def _look(root: Root, folder: str, at: int, names: dict[str, tuple[int, str]]) -> Iterator[Finding]:
    for name, (kind, called) in names.items():
        with suppress(FileNotFoundError):
            info = os.stat(name, dir_fd=at, follow_symlinks=False)
            path = str(root.path / folder / name)
            if stat.S_IFMT(info.st_mode) != kind:
                yield Finding(path, 0, f"not a {called}", _HINT)
            elif kind == stat.S_IFREG and info.st_nlink > 1:
                yield Finding(path, 0, "has another name elsewhere", _HINT)
