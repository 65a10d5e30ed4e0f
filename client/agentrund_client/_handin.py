"""Other people's leavings: spool files whose writers died before a collector came.

The collector takes in the files it can read; these are for one that cannot (another user, a container).
So they are left to it for a while first. Handing in needs the file's lock: never two at once, never a living
writer's file.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
import time

from agentrund_client._discover import socket_path, spool_folder
from agentrund_client._guard import note_fault
from agentrund_client._spool import try_lock
from agentrund_client._wire import Frame, decode, encode_frame, last_number

# How long the collector has to take them itself (seconds).
DELAY = 5.0
# A collector that says nothing for so long (seconds) gets the rest another time.
_PATIENCE = 30.0
_SEND_BYTES = 64 * 1024

_begun_by = 0


def hand_in_orphans() -> None:
    """Look once per process, in a thread that ends by itself. Called when a collector has answered."""
    global _begun_by  # noqa: PLW0603 - once per process
    if _begun_by == os.getpid():
        return
    _begun_by = os.getpid()
    try:
        if _files():
            threading.Thread(target=_wait_and_hand_in, name="agentrund-spool", daemon=True).start()
    except RuntimeError:  # no more threads
        return


def _wait_and_hand_in() -> None:
    time.sleep(DELAY)
    for path in _files():
        try:
            _hand_in_locked(path)
        except OSError:
            continue  # the collector has gone again, or it is not ours to read: it stays where it is
        except ValueError as fault:
            note_fault(fault, "handing in a spool file")


def _files() -> list[str]:
    folder = spool_folder()
    try:
        names = sorted(os.listdir(folder)) if folder else []  # noqa: PTH208
    except OSError:
        return []
    return [f"{folder}/{name}" for name in names if name.endswith(".jsonl") and not name.startswith(".")]


def _hand_in_locked(path: str) -> None:
    """Hand in one file if its writer is dead, and remove it once all of it is acked."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        found = os.fstat(fd)
        ordinary = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
        if not ordinary or not try_lock(fd) or os.fstat(fd).st_nlink != 1:
            return
        with os.fdopen(os.dup(fd), "rb") as file:
            done = _hand_in(file.read().split(b"\n")[:-1])
        if done:
            os.unlink(path)  # noqa: PTH108
    finally:
        os.close(fd)


def _hand_in(lines: list[bytes]) -> bool:
    """Send a dead source's lines under its own name; True when the collector has acked the last one."""
    hello = decode(lines[0]) if lines else {}
    if hello.get("op") != "hello":
        return False
    numbered = [(last_number(line), line) for line in lines[1:]]
    last = max((n for n, _ in numbered), default=0)
    path = socket_path()
    if path is None:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(_PATIENCE)
        sock.connect(path)
        talk = _Talk(sock)
        acked = talk.greet({**hello, "orphan": True})
        if acked is None and hello.get("run_id") is not None:
            # The run it belonged to is gone: what it said is kept in a run of its own.
            acked = talk.greet({**hello, "orphan": True, "run_id": None, "parent": None})
        if acked is None:
            return False
        talk.send([line for n, line in numbered if n > acked])
        return talk.acked_up_to(last, acked)


class _Talk:
    """A conversation with the collector, line by line; every wait is bounded."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._frames = sock.makefile("rb")

    def greet(self, hello: Frame) -> int | None:
        """Say hello; the collector's `acked`, or None when it refuses."""
        self._socket.sendall(encode_frame(hello))
        while line := self._frames.readline():
            frame = decode(line)
            if frame.get("op") == "welcome":
                return int(frame.get("acked") or 0)
            if frame.get("op") == "error":
                return None
        return None

    def send(self, lines: list[bytes]) -> None:
        """Send lines, some at a time."""
        block: list[bytes] = []
        size = 0
        for line in lines:
            block.append(line)
            size += len(line)
            if size > _SEND_BYTES:
                self._socket.sendall(b"\n".join(block) + b"\n")
                block, size = [], 0
        if block:
            self._socket.sendall(b"\n".join(block) + b"\n")

    def acked_up_to(self, last: int, acked: int) -> bool:
        """Read until number `last` is acked; False when the collector leaves before."""
        while acked < last:
            line = self._frames.readline()
            if not line:
                return False
            frame = decode(line)
            if frame.get("op") == "ack":
                acked = max(acked, int(frame.get("n") or 0))
        return True
