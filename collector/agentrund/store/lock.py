"""One collector per root: an advisory lock that names its owner.

The lock is the kernel's, so it cannot be left behind by a kill; the text in the file only tells people
and commands whom to ask.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from typing import Any

from agentrund.formats import layout
from agentrund.model.errors import Unavailable
from agentrund.store.folder import Folder


class RootLock:
    """The right to write in a root, held until ``release`` or the end of the process."""

    def __init__(self, root: Folder, state: Folder, owner: dict[str, Any]) -> None:
        """Take the lock in the root's state folder. Raises Unavailable with the owner's pid if it is taken.

        The root's own folder is locked too: the lock file may be removed under a collector that runs.
        ``owner`` is what others read: ``pid``, and ``socket`` where there is one.
        """
        self._owner = owner
        self._fd = state.open_file(layout.LOCK, os.O_RDWR | os.O_CREAT)
        try:
            for fd in (root.fd, self._fd):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 4096, 0)
            os.close(self._fd)
            raise Unavailable(
                f"{root.path} is written by another collector ({_name(holder)})",
                hint="use that one, stop it, or choose another --root",
            ) from None
        except OSError as error:
            os.close(self._fd)
            raise Unavailable(
                f"cannot lock {state.path}/{layout.LOCK}: {error.strerror}",
                hint="the root must lie on a local file system that supports flock",
            ) from error
        with suppress(OSError):  # a full disk is no reason not to start; `sign` comes again
            self.sign()

    def sign(self) -> None:
        """Write down who holds the lock. Raises OSError."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(self._owner).encode() + b"\n", 0)

    def release(self) -> None:
        """Give the lock up."""
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


def _name(holder: bytes) -> str:
    try:
        return f"pid {json.loads(holder)['pid']}"
    except (ValueError, KeyError, TypeError):
        return "pid unknown"
