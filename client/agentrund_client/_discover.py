"""Where things are: the collector's socket, the spool folder, the limits set by the environment."""

from __future__ import annotations

import os
import stat
import sys

from agentrund_client._guard import notice

# The kernel's sun_path, less the final NUL: 108 bytes on Linux, 104 on macOS.
MAX_SOCKET_PATH = 107 if sys.platform == "linux" else 103


def disabled() -> bool:
    """AGENTRUND_DISABLED=1 switches the whole client off."""
    return os.environ.get("AGENTRUND_DISABLED", "") not in {"", "0"}


def socket_path() -> str | None:
    """The collector's socket, or None where there is none (or its path is too long, which is told once)."""
    given = os.environ.get("AGENTRUND_SOCKET")
    path = given or next((path for path in _candidates() if _is_trusted_socket(path)), None)
    if path is not None and len(os.fsencode(path)) > MAX_SOCKET_PATH:
        size = len(os.fsencode(path))
        notice("path", f"socket path of {size} bytes is over the limit of {MAX_SOCKET_PATH}: {path}")
        return None
    return path


def spool_folder() -> str | None:
    """Where lines wait for a collector: $AGENTRUND_SPOOL, else below the user's state folder."""
    given = os.environ.get("AGENTRUND_SPOOL")
    if given:
        return given
    state = os.environ.get("XDG_STATE_HOME")
    if not state:
        home = os.path.expanduser("~")  # noqa: PTH111 - pathlib costs 5 ms of import
        if home == "~":
            return None
        state = os.path.join(home, ".local", "state")  # noqa: PTH118
    return os.path.join(state, "agentrund", "spool")  # noqa: PTH118


def limit(variable: str, default: int) -> int:
    """A size or count from the environment; nonsense means the default."""
    return int(seconds(variable, default))


def seconds(variable: str, default: float) -> float:
    """A time from the environment, in seconds; nonsense and negative numbers mean the default."""
    try:
        value = float(os.environ.get(variable, ""))
    except ValueError:
        return default
    return value if 0 <= value < float("inf") else default


def _candidates() -> list[str]:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folders = [f"{runtime}/agentrund"] if runtime else []
    folders += ["/run/agentrund", f"/tmp/agentrund-{os.getuid()}"]  # noqa: S108 - checked for its owner below
    return [f"{folder}/agentrund.sock" for folder in folders]


def _is_trusted_socket(path: str) -> bool:
    """A socket in a real folder that belongs to this user or root: nobody else could have put it there."""
    try:
        folder = os.lstat(os.path.dirname(path))  # noqa: PTH120
        return (
            stat.S_ISDIR(folder.st_mode)
            and folder.st_uid in {os.getuid(), 0}
            and stat.S_ISSOCK(os.lstat(path).st_mode)
        )
    except (OSError, ValueError):
        return False
