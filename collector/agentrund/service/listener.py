"""The listening Unix socket: made safely, never taken from a program that is alive."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from agentrund.model.errors import Unavailable

_BACKLOG: Final = 1024
_LOCK_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PRIVATE: Final = 0o177
"""The umask under which a socket is made: nobody but its owner may connect."""
_ANOTHER: Final = "choose another --socket"


class Listener:
    """A bound socket and the right to its path, until ``close``."""

    def __init__(self, path: Path, gid: int | None = None) -> None:
        """Bind ``path``, for us and the group ``gid``.

        Raises Unavailable where somebody serves it already, or something else lies there.
        """
        self.path = path
        # The lock decides between starters; it lies beside the socket because roots may differ.
        try:
            self._lock = os.open(path.with_name(f".{path.name}.lock"), _LOCK_FLAGS, 0o600)
        except OSError as error:
            raise Unavailable(
                f"cannot make a socket in {path.parent}: {error.strerror}", hint=_ANOTHER
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_stale(path)
            self.socket = _bind(path, gid)
            self._made = _identity(path)
        except BlockingIOError:
            os.close(self._lock)
            raise Unavailable(
                f"{path} is served by another collector",
                hint="use that one (`agentrund status`), stop it, or choose another --socket",
            ) from None
        except OSError as error:
            os.close(self._lock)
            raise Unavailable(
                f"cannot lock {path.parent}/.{path.name}.lock: {error.strerror}",
                hint="the socket's folder must lie on a local file system that supports flock",
            ) from error
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Remove the socket, unless something else has taken its place, and give the path up."""
        with suppress(OSError):
            if _identity(self.path) == self._made:
                self.path.unlink()
        self.socket.close()
        os.close(self._lock)


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _remove_stale(path: Path) -> None:
    """Make way for our socket; only a socket that nobody listens at is ever removed."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise Unavailable(f"{path} is not a socket", hint="move it away, or choose another --socket")
    if found.st_uid != os.geteuid():
        raise Unavailable(f"{path} belongs to uid {found.st_uid}", hint=_ANOTHER)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # A full backlog would keep us waiting: it is as good as an answer.
        probe.setblocking(False)  # noqa: FBT003 - the socket API's own signature
        try:
            probe.connect(os.fsencode(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError:
            # What cannot be told apart from a living owner's is left alone.
            pass
    raise Unavailable(f"{path} is in use by another program", hint=f"stop that one, or {_ANOTHER}")


def _bind(path: Path, gid: int | None) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(_PRIVATE)
    try:
        sock.bind(os.fsencode(path))
        if gid is not None:
            os.chown(path, -1, gid, follow_symlinks=False)
            path.chmod(0o660)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise Unavailable(f"cannot listen on {path}: {error.strerror}", hint=_ANOTHER) from error
    finally:
        os.umask(before)
    return sock
