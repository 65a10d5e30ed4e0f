"""The listening Unix socket: made safely, never taken from a collector that is alive."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from pathlib import Path
from typing import Final

from agentrund.model.errors import Unavailable

_BACKLOG: Final = 1024
_LOCK_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Listener:
    """A bound socket and the right to its path, until ``close``."""

    def __init__(self, path: Path) -> None:
        """Bind ``path``. Raises Unavailable where another collector serves it, or no socket lies there."""
        self.path = path
        # The lock decides between starters; it lies beside the socket because roots may differ.
        try:
            self._lock = os.open(path.with_name(f".{path.name}.lock"), _LOCK_FLAGS, 0o600)
        except OSError as error:
            raise Unavailable(
                f"cannot make a socket in {path.parent}: {error.strerror}", hint="choose another --socket"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_stale(path)
            self.socket = _bind(path)
        except BlockingIOError:
            os.close(self._lock)
            raise Unavailable(
                f"{path} is served by another collector",
                hint="use that one (`agentrund status`), stop it, or choose another --socket",
            ) from None
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Remove the socket and give its path up."""
        self.path.unlink(missing_ok=True)
        self.socket.close()
        os.close(self._lock)


def _remove_stale(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise Unavailable(f"{path} is not a socket", hint="move it away, or choose another --socket")
    path.unlink()


def _bind(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        sock.bind(str(path))
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise Unavailable(
            f"cannot listen on {path}: {error.strerror}", hint="choose another --socket"
        ) from error
    finally:
        os.umask(before)
    return sock
