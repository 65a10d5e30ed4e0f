"""Who is at the other end of a Unix socket, in the kernel's words."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Final

_SO_PEERPIDFD: Final = 77
"""Linux 6.5: a pidfd of the peer, free of the race between reading a pid and opening it."""

_UCRED: Final = struct.Struct("iII")


@dataclass(slots=True, frozen=True)
class Peer:
    """``pid`` is None where the kernel cannot name it (another pid namespace); ``pidfd`` is good there too.

    The taker closes ``pidfd``.
    """

    pid: int | None
    uid: int
    pidfd: int | None


def peer_of(sock: socket.socket) -> Peer:
    """The process that connected ``sock``; it may be dead already."""
    pid, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    try:
        pidfd = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        # An older kernel, or the process has been reaped: the watcher tells the two apart.
        pidfd = None
    return Peer(pid if pid > 0 else None, uid, pidfd)
