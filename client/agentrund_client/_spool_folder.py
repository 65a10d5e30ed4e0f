"""Spool files of a folder: how one is begun, and how much may wait where no collector comes for weeks.

Bytes, files and days are looked at when a file is begun. Nothing disappears without a word: a file that has
waited too long keeps its hello, its run's end and the count of the events it held; a new file in a full
folder has no room for events, so they are counted as lost in it.
"""

from __future__ import annotations

import os
import stat
import time
from itertools import islice

from agentrund_client._discover import limit, seconds, spool_folder
from agentrund_client._spool import Spool, make_private_folder, try_lock
from agentrund_client._wire import Frame, encode_frame, last_number, lost_line

SPOOL_BYTES = 64 << 20
FOLDER_BYTES = 1 << 30
# A file for every process that dies: thousands mean that nobody collects them.
FOLDER_FILES = 4096
MAX_AGE = 30 * 86_400.0
# Old files emptied when a new one is begun: the agent must not wait for a whole folder of them.
_EMPTIED_AT_ONCE = 16
_TAIL = 64 * 1024
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def open_spool(hello: Frame, old: Spool | None, acked: int) -> Spool:
    """The spool file of a source: the old one, or a new one with its unsettled lines where it was taken away.

    Raises OSError where no spool can be had.
    """
    if old is not None and not old.taken:
        return old
    folder = spool_folder()
    if folder is None:
        raise FileNotFoundError("there is no home folder")
    make_private_folder(folder)
    source = hello["source"]
    size = min(limit("AGENTRUND_SPOOL_MAX_BYTES", SPOOL_BYTES), _room(folder, f"{source}.jsonl"))
    spool = Spool(folder, source, encode_frame(hello), size)
    if old is not None:
        for n, line in old.lines(acked):
            spool.append(n, line, must=True)
        old.close()
    return spool


def _room(folder: str, own: str) -> int:
    """Bytes that the file named `own` may have. OSError where there are too many others already."""
    found = _others(folder, own)
    if len(found) >= FOLDER_FILES:
        raise OSError(f"{FOLDER_FILES} files wait in {folder}")
    oldest = time.time() - seconds("AGENTRUND_SPOOL_MAX_AGE", MAX_AGE)
    used = sum(size for _, _, size in found)
    emptied = (_emptied(path, size) for modified, path, size in sorted(found) if modified < oldest)
    used -= sum(islice(filter(None, emptied), _EMPTIED_AT_ONCE))
    return max(0, limit("AGENTRUND_SPOOL_FOLDER_MAX_BYTES", FOLDER_BYTES) - used)


def _others(folder: str, own: str) -> list[tuple[float, str, int]]:
    """Age, path and size of what waits, of no more than the files there may be."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".jsonl") and not entry.name.startswith(".") and entry.name != own:
                try:
                    info = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # taken in just now
                    continue
                found.append((info.st_mtime, entry.path, info.st_size))
                if len(found) >= FOLDER_FILES:
                    break
    return found


def _emptied(path: str, size: int) -> int:
    """Leave of a dead writer's file what tells of it; by how many bytes it has become smaller."""
    try:
        fd = os.open(path, _FLAGS)
    except OSError:
        return 0
    try:
        info = os.fstat(fd)
        ours = stat.S_ISREG(info.st_mode) and info.st_uid == os.getuid() and info.st_nlink == 1
        stub = _stub(fd, size) if ours and try_lock(fd) else b""
        if not stub or len(stub) >= size:
            return 0
        _replace(path, stub)
    except (OSError, ValueError):
        return 0
    finally:
        os.close(fd)
    return size - len(stub)


def _stub(fd: int, size: int) -> bytes:
    """Hello, the events as lost, the end of the run; empty where the file does not look like one of ours."""
    head, _, rest = os.pread(fd, _TAIL, 0).partition(b"\n")
    if not rest or not head.startswith(b'{"op":"hello"'):
        return b""
    tail, lines = _TAIL, _lines_of_the_last(fd, size, _TAIL)
    while not lines and tail < size:
        tail *= 4
        lines = _lines_of_the_last(fd, size, tail)
    last = max((last_number(line) for line in lines), default=0)
    if not last:
        return b""
    end = lines[-1] + b"\n" if b'"type":"run.end"' in lines[-1] and last_number(lines[-1]) == last else b""
    lost = last - 1 if end else last
    return head + b"\n" + (lost_line(1, lost) if lost else b"") + end


def _lines_of_the_last(fd: int, size: int, count: int) -> list[bytes]:
    """The whole lines among the last `count` bytes, without the first line of the file."""
    return os.pread(fd, count, max(0, size - count)).split(b"\n")[1:-1]


def _replace(path: str, content: bytes) -> None:
    folder, name = os.path.split(path)
    temporary = f"{folder}/.{name}.new"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, content)
        os.rename(temporary, path)  # noqa: PTH104 - pathlib costs 5 ms of import
    except OSError:
        os.unlink(temporary)  # noqa: PTH108
        raise
    finally:
        os.close(fd)
