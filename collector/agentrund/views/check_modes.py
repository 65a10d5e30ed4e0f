"""Who but their owner could change what was recorded.

The collector writes files 0600 and folders 0700. A copy may be readable by more, which is its owner's
business; one that others can write is no record any more.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Final

from agentrund.formats import layout
from agentrund.views.finding import Finding
from agentrund.views.folder import Root

_NAMES: Final = ("", layout.INDEX, layout.NAVIGATE, layout.RUNS, layout.SESSIONS, layout.STATE)
_WRITABLE: Final = stat.S_IWGRP | stat.S_IWOTH


def check_root_modes(root: Root) -> Iterator[Finding]:
    """The root itself and what lies in it beside the runs."""
    for name in _NAMES:
        yield from check_path(str(root.path / name))


def check_path(path: str) -> Iterator[Finding]:
    """One path, by its name; a missing one is not looked at."""
    try:
        info = os.lstat(path)
    except OSError:
        return
    yield from check_mode(path, info)


def check_mode(path: str, info: os.stat_result) -> Iterator[Finding]:
    """One file or folder whose ``lstat`` is known; links have no mode that counts."""
    if info.st_mode & _WRITABLE and not stat.S_ISLNK(info.st_mode):
        mode = stat.S_IMODE(info.st_mode)
        yield Finding(path, 0, f"mode {mode:04o}: not only its owner can write it", f"`chmod go-w {path}`")
