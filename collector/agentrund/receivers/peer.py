"""Who is at the other end of a Unix socket, in the kernel's words."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_SO_PEERPIDFD: Final = 77
"""Linux 6.5: a pidfd of the peer, free of the race between reading a pid and opening it."""

_SO_PEERGROUPS: Final = 59
"""Linux 4.13: the peer's supplementary groups at the moment it connected."""

_UCRED: Final = struct.Struct("iII")
_GID_BYTES: Final = 4
_FEW_GROUPS: Final = 64
_MOST_GROUPS: Final = 65536
"""``NGROUPS_MAX``."""


@dataclass(slots=True, frozen=True)
class Peer:
    """``pid`` is None where the kernel cannot name it (another pid namespace); ``pidfd`` is good there too.

    ``gids`` are all its groups. The taker closes ``pidfd``.
    """

    pid: int | None
    uid: int
    gids: frozenset[int]
    pidfd: int | None


def peer_of(sock: socket.socket) -> Peer:
    """The process that connected ``sock``; it may be dead already."""
    pid, uid, gid = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    gids = frozenset((gid, *_groups_of(sock)))
    try:
        pidfd = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        # An older kernel, or the process has been reaped: the watcher tells the two apart.
        pidfd = None
    return Peer(pid if pid > 0 else None, uid, gids, pidfd)


def _groups_of(sock: socket.socket) -> Iterator[int]:
    for most in (_FEW_GROUPS, _MOST_GROUPS):
        try:
            found = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, most * _GID_BYTES)
        except OSError:
            # More than fit, or an older kernel: then the group it runs as is all that counts.
            continue
        return (gid for (gid,) in struct.iter_unpack("I", found))
    return iter(())
