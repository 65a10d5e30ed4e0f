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

_PRIVATE: Final = 0o700
_SHARED: Final = 0o750
_WRITABLE: Final = stat.S_IWGRP | stat.S_IWOTH
_NAME_ANOTHER: Final = "name a path in a folder of your own with --socket"


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


def listen_socket(configured: Path | None, env: Mapping[str, str], gid: int | None = None) -> Path:
    """The path a collector listens at; its folder exists afterwards, and nobody else can write there.

    ``gid`` is the group that may connect. The socket itself is not touched. Raises Unavailable, UsageError.
    """
    if configured is not None:
        check_length(configured)
        problem = _named_folder(configured.parent, gid)
        if problem is not None:
            raise Unavailable(f"{configured.parent}: {problem}", hint=_NAME_ANOTHER)
        return configured
    refused = []
    for path in socket_candidates(env):
        problem = _too_long(path) or _own_folder(path.parent, gid)
        if problem is None:
            return path
        refused.append(f"{path.parent}: {problem}")
    raise Unavailable("no place for the socket: " + "; ".join(refused), hint=_NAME_ANOTHER)


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
    problem = _too_long(path)
    if problem is not None:
        where = f"{origin}: {path}" if origin else str(path)
        raise UsageError(f"{where}: {problem}", hint="name a shorter one with --socket or AGENTRUND_SOCKET")


def _too_long(path: Path) -> str | None:
    size = len(os.fsencode(path))
    return (
        None if size <= SOCKET_PATH_MAX else f"socket path has {size} bytes, the limit is {SOCKET_PATH_MAX}"
    )


def discovery_path(socket: Path) -> Path:
    """The discovery file beside a socket: ``.sock`` becomes ``.json``, any other name gets it appended."""
    if socket.suffix == ".sock":
        return socket.with_suffix(".json")
    return socket.with_name(socket.name + ".json")


def _named_folder(folder: Path, gid: int | None) -> str | None:
    """Make ``folder`` where it is missing; returns what forbids a socket there. Old ones keep their modes."""
    if not folder.exists():
        try:
            folder.mkdir(mode=_PRIVATE, parents=True)
            _open_to(folder, gid)
        except FileExistsError:
            pass  # another collector that starts was faster: the folder is looked at as any other
        except OSError as error:
            return f"cannot be created: {error.strerror}"
    found = folder.stat()
    if not stat.S_ISDIR(found.st_mode):
        return "not a folder"
    if found.st_uid not in (os.geteuid(), 0):
        return f"belongs to uid {found.st_uid}, who could take the socket's place"
    if found.st_mode & _WRITABLE:
        # The sticky bit does not help: whoever is there first has the path, and gets what clients send.
        return f"mode {stat.S_IMODE(found.st_mode):04o}: others can write there and take the socket's place"
    if gid is not None and not _may_enter(found, gid):
        return f"group {gid} cannot enter it (`chgrp {gid}` and `chmod g+x` open it)"
    return None


def _may_enter(folder: os.stat_result, gid: int) -> bool:
    return bool(folder.st_mode & (stat.S_IXGRP if folder.st_gid == gid else stat.S_IXOTH))


def _open_to(folder: Path, gid: int | None) -> None:
    """Let a group in, to look but not to write."""
    if gid is not None:
        os.chown(folder, -1, gid)
    folder.chmod(_PRIVATE if gid is None else _SHARED)


def _own_folder(folder: Path, gid: int | None) -> str | None:
    """Make ``folder`` ours (and the group's to enter); returns what stands in the way."""
    try:
        folder.mkdir(mode=_PRIVATE)
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
    _open_to(folder, gid)
    return None
