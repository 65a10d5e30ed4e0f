"""Processes of another user: which test needs them, and a folder that they can reach."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UID = 65534


def as_other(gid: int = UID, groups: tuple[int, ...] = ()) -> list[str]:
    """What to put before a command so that another user runs it, with these groups and no others."""
    more = ["--groups", ",".join(map(str, groups))] if groups else ["--clear-groups"]
    return ["setpriv", "--reuid", str(UID), "--regid", str(gid), *more]


@functools.cache
def impossible() -> str:
    """Why nothing can be run as another user here; empty where it can."""
    if os.geteuid() != 0:
        return "only root can run something as another user"
    if shutil.which("setpriv") is None:
        return "setpriv is not installed"
    tried = subprocess.run(
        [*as_other(), sys.executable, "-c", "import agentrund"], check=False, capture_output=True, cwd="/"
    )
    return "another user cannot reach this Python" if tried.returncode else ""


@contextmanager
def reachable_folder() -> Iterator[Path]:
    """A folder of ours that others may pass through; pytest's own are closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="agentrund-test-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
