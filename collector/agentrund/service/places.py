"""Where things are by default: the root, the Unix socket, the discovery file.

It looks at the environment and at the owners of folders; it makes the socket's folder and nothing else.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agentrund.model.errors import Unavailable, UsageError

SOCKET_NAME: Final = "agentrund.sock"
SOCKET_PATH_MAX: Final = 103 if sys.platform == "darwin" else 107
"""Longest socket path in bytes: ``sun_path`` has 104 or 108, one of them for the closing NUL."""


def xdg_folder(env: Mapping[str, str], variable: str, below_home: str) -> Path:
    """A folder of the XDG base directory rules; a relative value does not count."""
    given = env.get(variable, "")
    if given.startswith("/"):
        return Path(given)
    return Path(env.get("HOME") or "/") / below_home


def default_root(env: Mapping[str, str]) -> Path:
    """``.runs`` in the working folder for a person, the state folder for a service."""
    # The service manager names its direct child; a shell started below a service is still a person's.
    if env.get("SYSTEMD_EXEC_PID") != str(os.getpid()):
        return Path.cwd() / ".runs"
    if given := env.get("STATE_DIRECTORY", "").split(":")[0]:
        return Path(given)
    if os.geteuid() == 0:
        return Path("/var/lib/agentrund")
    return xdg_folder(env, "XDG_STATE_HOME", ".local/state") / "agentrund"


def socket_candidates(env: Mapping[str, str]) -> list[Path]:
    """Where the socket may be when nobody named it, in the order of the stream protocol."""
    folders = [Path("/run/agentrund"), Path(f"/tmp/agentrund-{os.geteuid()}")]  # noqa: S108
    runtime = env.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        folders.insert(0, Path(runtime) / "agentrund")
    return [folder / SOCKET_NAME for folder in folders]


def listen_socket(configured: Path | None, env: Mapping[str, str]) -> Path:
    """The path a collector listens at; its folder exists afterwards. The socket itself is not touched."""
    if configured is not None:
        check_length(configured)
        try:
            configured.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(
                f"{configured.parent}: cannot be created: {error.strerror}", hint="name another with --socket"
            ) from error
        return configured
    refused = []
    for path in socket_candidates(env):
        problem = _own_folder(path.parent)
        if problem is None:
            check_length(path)
            return path
        refused.append(f"{path.parent}: {problem}")
    raise Unavailable("no place for the socket: " + "; ".join(refused), hint="name one with --socket")


def find_socket(configured: Path | None, env: Mapping[str, str]) -> Path | None:
    """The socket a client would use: the named one, or the first candidate that exists and is trusted."""
    if configured is not None:
        return configured
    for path in socket_candidates(env):
        try:
            folder, sock = os.lstat(path.parent), os.lstat(path)
        except OSError:
            continue
        if folder.st_uid in (os.geteuid(), 0) and stat.S_ISSOCK(sock.st_mode):
            return path
    return None


def check_length(path: Path, origin: str = "") -> None:
    """Refuse a socket path the kernel would refuse, naming the limit and where the path came from."""
    size = len(os.fsencode(path))
    if size > SOCKET_PATH_MAX:
        where = f"{origin}: {path}" if origin else str(path)
        raise UsageError(
            f"{where}: socket path has {size} bytes, the limit is {SOCKET_PATH_MAX}",
            hint="name a shorter one with --socket or AGENTRUND_SOCKET",
        )


def discovery_path(socket: Path) -> Path:
    """The discovery file beside a socket: ``.sock`` becomes ``.json``, any other name gets it appended."""
    if socket.suffix == ".sock":
        return socket.with_suffix(".json")
    return socket.with_name(socket.name + ".json")


def _own_folder(folder: Path) -> str | None:
    """Make ``folder`` ours alone; returns what stands in the way."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        return error.strerror or "cannot be created"
    # lstat: in /tmp anybody may have put a link where the folder should be.
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        return "not a folder"
    if found.st_uid != os.geteuid():
        return f"belongs to uid {found.st_uid}"
    folder.chmod(0o700)
    return None
