"""Asking a running collector over its socket: ``status``, and work that only the root's holder may do.

The other half of the stream protocol's control frames, for commands. Decides whom to ask; shows nothing.
"""

from __future__ import annotations

import os
import socket as sockets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from agentrund.formats import layout
from agentrund.model.errors import AgentrundError, Damaged, NoSuchRun, Rejected, Unavailable
from agentrund.service import places

Frame = dict[str, Any]


class DamagedThere(Damaged):
    """Damage that the collector met; its message is the collector's, path and offset are in there."""

    def __init__(self, message: str) -> None:
        super().__init__(message, path="", offset=0, hint="`agentrund verify` names each damage")

    def __str__(self) -> str:
        return self.message


class _Owner(msgspec.Struct):
    """What stands in a root's lock file."""

    pid: int
    socket: str | None = None


STATUS_TIMEOUT_S: Final = 5.0
"""A collector answers status from its loop, which nothing holds for longer than milliseconds."""
_LOCK_MAX: Final = 4096
_NOT_RUNNING: Final = "start it with `agentrund serve`, or name its socket with --socket"


def ask(socket: Path, frame: Frame, *, timeout: float | None) -> Iterator[Frame]:
    """Send one frame and yield every frame that comes back.

    Raises Unavailable where nobody answers, UsageError where no socket can have that path.
    """
    places.check_length(socket)
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as peer:
        peer.settimeout(timeout)
        try:
            peer.connect(os.fsencode(socket))
            peer.sendall(msgspec.json.encode(frame) + b"\n")
            with peer.makefile("rb") as answers:
                for line in answers:
                    if line.endswith(b"\n"):
                        yield _parsed(line, socket)
        except TimeoutError:
            raise Unavailable(
                f"the collector at {socket} does not answer",
                hint="look at its log; it may be busy or stopped",
            ) from None
        except OSError as error:
            raise Unavailable(
                f"no collector at {socket}: {error.strerror or error}", hint=_NOT_RUNNING
            ) from error


def status(socket: Path) -> Frame:
    """What the collector says of itself."""
    for frame in ask(socket, {"op": "status"}, timeout=STATUS_TIMEOUT_S):
        if frame.get("op") == "status":
            return frame
        if frame.get("op") == "error":
            raise _refusal(frame)
    raise Unavailable(f"the collector at {socket} hung up without an answer", hint="look at its log")


def do(socket: Path, what: str, args: Frame) -> Iterator[Frame]:
    """Have the collector do something; yields its ``progress`` frames, then ``done``."""
    for frame in ask(socket, {"op": "do", "what": what, "args": args}, timeout=None):
        if frame.get("op") == "error":
            raise _refusal(frame)
        if frame.get("op") in ("progress", "done"):
            yield frame
        if frame.get("op") == "done":
            return
    raise Unavailable(f"the collector at {socket} hung up before {what} was done", hint="look at its log")


def holder(root: Path) -> Path | None:
    """The socket of the collector that holds ``root``; None where nobody answers there.

    The lock itself is not tried: even for a moment, that would keep a starting collector out.
    """
    try:
        fd = os.open(
            root / layout.STATE / layout.LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
        with os.fdopen(fd, "rb") as file:
            owner = msgspec.json.decode(file.read(_LOCK_MAX), type=_Owner)
    except (OSError, msgspec.MsgspecError):
        return None
    return Path(owner.socket) if owner.socket and _answers(owner.socket) else None


def _answers(socket: str) -> bool:
    """Whether somebody listens: a killed collector leaves its name in the lock, but nobody at its socket."""
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as peer:
        peer.settimeout(STATUS_TIMEOUT_S)
        try:
            peer.connect(socket)
        except (OSError, ValueError):
            return False
    return True


def collector_of(root: Path) -> Path:
    """The socket of the collector that holds ``root``, and of no other. Raises Unavailable."""
    found = holder(root)
    if found is None:
        raise Unavailable(f"no collector holds {root}", hint=f"start it with `agentrund serve --root {root}`")
    return found


def find_collector(named: Path | None, root: Path) -> Path:
    """The socket to ask: the named one, that of the root's holder, or where one usually is.

    Raises Unavailable.
    """
    found = named or holder(root) or places.find_socket(None, os.environ)
    if found is None:
        raise Unavailable("no collector is running", hint=_NOT_RUNNING)
    return found


def _parsed(line: bytes, socket: Path) -> Frame:
    try:
        return msgspec.json.decode(line, type=Frame)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"{socket} answers, but is no collector", hint=_NOT_RUNNING) from error


def _refusal(frame: Frame) -> AgentrundError:
    code, message = str(frame.get("code")), str(frame.get("message"))
    if frame.get("kind") == "damaged":
        return DamagedThere(message)
    if code == "unknown_run":
        return NoSuchRun(message, hint="`agentrund runs` lists the runs")
    if code in ("overloaded", "storage"):
        return Unavailable(message, hint="try again when the collector has room")
    return Rejected(code, message, hint="command and collector may be of different versions")
