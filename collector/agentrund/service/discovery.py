"""The discovery file: how clients, ``status`` and tests find a running collector's addresses.

Written beside the socket once everything listens, removed at exit. It decides nothing about liveness:
a file that a killed collector left behind still reads well, so callers must try the socket.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

import msgspec

from agentrund.model.errors import Unavailable
from agentrund.service.places import discovery_path

_OPEN = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """What a collector says of itself. Addresses are ``host:port``; a door that is off is None.

    ``started_at`` is ISO 8601 with offset.
    """

    pid: int
    socket: str
    otlp_grpc: str | None
    http: str | None = None
    root: str
    version: str
    started_at: str


_DECODER = msgspec.json.Decoder(Discovery)


def write(found: Discovery, gid: int | None = None) -> Path:
    """Put the file beside its socket, replacing an old one in one step, for us and the group ``gid`` to read.

    Raises Unavailable where something else of that name lies there.
    """
    path = discovery_path(Path(found.socket))
    _refuse_foreign(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    fd = os.open(temporary, _OPEN, 0o600)
    try:
        if gid is not None:
            os.fchown(fd, -1, gid)
            os.fchmod(fd, 0o640)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(found) + b"\n")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def _refuse_foreign(path: Path) -> None:
    """A socket named like a program's may have a neighbour that is not ours to replace."""
    if not os.path.lexists(path) or _read(path) is not None:
        return
    with contextlib.suppress(OSError):
        info = path.lstat()
        if stat.S_ISREG(info.st_mode) and info.st_size == 0:
            return  # of a start that lost its power
    raise Unavailable(
        f"{path} is in the place of the discovery file, and is none",
        hint="move it away, or choose another --socket",
    )


def read(socket: Path) -> Discovery | None:
    """What stands beside ``socket``; None where nothing does, or nothing that can be trusted."""
    return _read(discovery_path(socket))


def _read(path: Path) -> Discovery | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if os.fstat(fd).st_uid not in (os.geteuid(), 0):
                return None
            return _DECODER.decode(file.read())
    except (OSError, msgspec.MsgspecError):
        return None


def remove(socket: Path) -> None:
    """Take the file away, unless a successor has already put its own there."""
    found = read(socket)
    if found is not None and found.pid == os.getpid():
        with contextlib.suppress(OSError):
            discovery_path(socket).unlink()
