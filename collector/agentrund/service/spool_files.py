"""Files of a spool folder: which of them may be opened, who holds them, and what their first line says.

Decides what is looked at, never what a frame means to a run. A folder that a person, a stranger or a dying
disk has put something into is ordinary: nothing here follows a link, blocks, or touches what is not ours.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from agentrund.model.errors import Rejected
from agentrund.receivers.decode.jsonl import EventFrame, Frame, Hello, decode
from agentrund.receivers.line_splitter import LineSplitter
from agentrund.service.places import xdg_folder

SUFFIX: Final = ".jsonl"
HEAD_BYTES: Final = 1 << 18
"""As far as the beginning of a file is looked at before it is taken in."""


_EMPTY_S: Final = 60.0
"""An empty file may just be being written by somebody who knows nothing of locks."""


class NotTakenError(Exception):
    """A file that is not taken in now, and why."""


def spool_folder() -> Path:
    """Where this user's clients spool: ``$AGENTRUND_SPOOL``, else below the XDG state folder."""
    given = os.environ.get("AGENTRUND_SPOOL")
    return (
        Path(given) if given else xdg_folder(os.environ, "XDG_STATE_HOME", ".local/state") / "agentrund/spool"
    )


def names(folder: Path) -> list[str]:
    """The files that lie in ``folder``. Raises NotTakenError where it is somebody else's."""
    try:
        found = os.stat(folder)  # noqa: PTH116
        if found.st_uid not in _trusted():
            raise NotTakenError(f"the folder belongs to uid {found.st_uid}")
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if e.name.endswith(SUFFIX) and not e.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise NotTakenError(error.strerror or str(error)) from error


@contextmanager
def orphan(path: Path) -> Iterator[tuple[int, int] | None]:
    """Descriptor and owner of a file whose writer is dead, locked; None where it lives or the file is gone.

    Raises NotTakenError where it is no file to be taken in.
    """
    fd = _open(path)
    if fd is None:
        yield None
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None  # its writer lives, and hands it in itself
            return
        # Only now: a client that makes its file gives it a second name for a moment, but holds its lock.
        info = os.fstat(fd)
        if info.st_nlink > 1:
            raise NotTakenError(f"it has {info.st_nlink} names")
        begun = info.st_size == 0 and time.time() - info.st_mtime < _EMPTY_S
        yield (fd, info.st_uid) if info.st_nlink and not begun else None
    finally:
        os.close(fd)


def _open(path: Path) -> int | None:
    try:
        # Looked at before it is opened: to open a device may do something.
        _must_be_ours(os.lstat(path))
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotTakenError(error.strerror or str(error)) from error
    try:
        _must_be_ours(os.fstat(fd))
    except NotTakenError:
        os.close(fd)
        raise
    return fd


def _must_be_ours(info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise NotTakenError("it is no plain file")
    if info.st_uid not in _trusted():
        raise NotTakenError(f"it belongs to uid {info.st_uid}")


def _trusted() -> tuple[int, int]:
    """Whose frames are taken, as at the socket."""
    return 0, os.geteuid()


def head(fd: int) -> tuple[Hello | None, float | None]:
    """The hello a file begins with, and the time of its first event, as far as they are near."""
    hello = None
    for number, line in enumerate(LineSplitter(HEAD_BYTES).feed(os.pread(fd, HEAD_BYTES, 0))):
        frame = _frame(line)
        if number == 0:
            if not isinstance(frame, Hello):
                break
            hello = frame
        elif isinstance(frame, EventFrame) and frame.event.ts is not None:
            return hello, frame.event.ts
    return hello, None


def _frame(line: bytes | None) -> Frame | None:
    try:
        return None if line is None else decode(line)
    except Rejected:
        return None
