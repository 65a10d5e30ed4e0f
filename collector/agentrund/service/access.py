"""Who may connect and read: the collector's own user, root, and the members of one group where it is named.

Whoever asks is judged by what the kernel says of it, not by the modes of socket and files alone.
"""

from __future__ import annotations

import grp
import os
from dataclasses import dataclass
from typing import Final, Self

from agentrund.model.errors import UsageError
from agentrund.receivers.peer import Peer

_PRIVATE_UMASK: Final = 0o077
_SHARED_UMASK: Final = 0o027


@dataclass(frozen=True, slots=True)
class Access:
    """``gid`` is the group that may connect and read; None: nobody but ourselves."""

    gid: int | None = None

    @classmethod
    def of(cls, group: str | None) -> Self:
        """The access that a ``group`` setting means: a name, or a number.

        Raises UsageError where there is no such group, or this user cannot give files to it.
        """
        if group is None:
            return cls()
        try:
            gid = int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
        except KeyError:
            raise UsageError(
                f"group: there is no group `{group}`", hint="`getent group` lists them"
            ) from None
        if os.geteuid() != 0 and gid not in {os.getegid(), *os.getgroups()}:
            raise UsageError(
                f"group: uid {os.geteuid()} is not in group `{group}`",
                hint="add this user to it and log in again, or name another (`id` shows which)",
            )
        return cls(gid)

    @property
    def umask(self) -> int:
        """What nothing that is made may grant."""
        return _PRIVATE_UMASK if self.gid is None else _SHARED_UMASK

    @staticmethod
    def owns(uid: int | None) -> bool:
        """Whether a user may do everything: the collector's own, and root."""
        return uid in (os.geteuid(), 0)

    def admits(self, peer: Peer) -> bool:
        """Whether a process may connect."""
        return self.owns(peer.uid) or (self.gid is not None and self.gid in peer.gids)
