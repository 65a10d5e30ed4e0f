"""Deaths of local processes, as the kernel tells them: when (pidfd) and why (``PIDFD_GET_INFO``).

A pidfd is immune to the reuse of a pid and fires within about a millisecond; the end of a connection
proves nothing (a grandchild that inherited the socket delays it by minutes).
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import select
import signal
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agentrund.model.source import Identity
from agentrund.store.descriptors import with_reserve

log: Final = logging.getLogger(__name__)

_PIDFD_GET_INFO: Final = 0xC040FF0B
"""``_IOWR(0xFF, 11, struct pidfd_info)`` in its first, 64-byte version (Linux 6.13)."""
_PIDFD_INFO: Final = struct.Struct("=QQ11Ii")
_INFO_EXIT: Final = 1 << 3
"""``PIDFD_INFO_EXIT``: the exit status of a process that has been reaped (Linux 6.15)."""

_NO_PID: Final = 0
"""What the kernel calls a process that lies outside of our pid namespace."""

OnExit = Callable[[str], None]
"""Called once with the cause: ``process exited: killed by SIGKILL``."""


@dataclass(slots=True)
class _Watched:
    pidfd: int
    pid: int
    start: int
    callbacks: dict[OnExit, None] = field(default_factory=dict)


class ProcessWatch:
    """Watches processes by identity (pid and start time); several sources of one process share a pidfd."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watched: dict[tuple[int, int], _Watched] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, identity: Identity, on_exit: OnExit, pidfd: int | None = None) -> bool:
        """Call ``on_exit`` when that very process ends. False where it is gone already.

        ``pidfd`` is one the kernel gave for this process; it is taken over or closed.
        """
        pid, start = identity.pid, identity.pid_start
        if pid is None or (start is None and pidfd is None):
            return False
        if start is None:
            # Reaped before we could read its start time: the kernel's own descriptor still knows it.
            start = 0
        entry = self._watched.get((pid, start))
        if entry is not None:
            _close(pidfd)
            entry.callbacks[on_exit] = None
            return True
        if pidfd is None:
            pidfd = _open_checked(pid, start)
            if pidfd is None:
                return False
        self._add((pid, start), _Watched(pidfd, pid, start, {on_exit: None}))
        return True

    def watch_handle(self, pidfd: int, on_exit: OnExit) -> None:
        """Call ``on_exit`` when the process of ``pidfd`` ends, which has no pid here (another namespace)."""
        self._add((_NO_PID, pidfd), _Watched(pidfd, _NO_PID, 0, {on_exit: None}))

    def _add(self, key: tuple[int, int], entry: _Watched) -> None:
        self._watched[key] = entry
        self._loop.add_reader(entry.pidfd, self._fire, key)

    def forget(self, identity: Identity, on_exit: OnExit) -> None:
        """``on_exit`` has no use for the end of that process any more."""
        if identity.pid is None:
            return
        key = (identity.pid, identity.pid_start or 0)
        entry = self._watched.get(key)
        if entry is None:
            return
        entry.callbacks.pop(on_exit, None)
        if not entry.callbacks:
            del self._watched[key]
            self._loop.remove_reader(entry.pidfd)
            os.close(entry.pidfd)

    def look(self, identity: Identity) -> None:
        """Deliver the exit of a process now if it has happened, before anything is decided about it."""
        if identity.pid is None or identity.pid_start is None:
            return
        entry = self._watched.get((identity.pid, identity.pid_start))
        if entry is None:
            return
        poll = select.poll()
        poll.register(entry.pidfd, select.POLLIN)
        if poll.poll(0):
            self._fire((identity.pid, identity.pid_start))

    def _fire(self, key: tuple[int, int]) -> None:
        entry = self._watched.pop(key, None)
        if entry is None:
            return
        self._loop.remove_reader(entry.pidfd)
        cause = _cause(entry)
        os.close(entry.pidfd)
        for callback in entry.callbacks:
            try:
                callback(cause)
            except Exception:
                # The others who watch this process must hear of it all the same.
                log.exception("the end of pid %d was not taken: a bug of ours", entry.pid)

    def close(self) -> None:
        """Stop watching."""
        for entry in self._watched.values():
            self._loop.remove_reader(entry.pidfd)
            os.close(entry.pidfd)
        self._watched.clear()


def start_time(pid: int) -> int | None:
    """Clock ticks after boot at which a process started (field 22 of its stat), None where it is gone.

    Raises OSError where it cannot be seen (no descriptor left): that is no word on the process.
    """
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def is_running(pid: int, start: int | None) -> bool:
    """Whether that very process still runs; one that only waits to be reaped does not."""
    fields = _stat(pid)
    return fields is not None and int(fields[19]) == start and fields[0] not in (b"Z", b"X")


def process_groups(pid: int) -> frozenset[int]:
    """All its groups, none where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    fields = [line.split()[1:] for line in lines if line.startswith(("Gid:", "Groups:"))]
    return frozenset(int(gid) for gids in fields for gid in gids)


def boot_id() -> str | None:
    """The kernel's id of this boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def describe(pid: int) -> dict[str, object]:
    """What /proc tells of a process that did not introduce itself: ``argv``, ``cwd``, ``task`` (its name)."""
    found: dict[str, object] = {}
    base = Path(f"/proc/{pid}")
    try:
        found["task"] = (base / "comm").read_text(encoding="utf-8", errors="replace").strip()
        argv = (base / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        found["argv"] = argv[:-1]
        found["cwd"] = os.fsencode((base / "cwd").readlink()).decode("utf-8", "replace")
    except OSError:
        # Gone, or not ours to see: what was read until here counts.
        return found
    return found


def _stat(pid: int) -> list[bytes] | None:
    """The fields of ``/proc/<pid>/stat`` after the name, which may hold anything, even parentheses."""
    try:
        fd = with_reserve(lambda: os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC))
        with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            data = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return data[data.rindex(b")") + 2 :].split()


def _open_checked(pid: int, start: int) -> int | None:
    """A pidfd of the process with that start time; None where it is gone or the pid is another's now."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    # Opened first, compared after: from here on the descriptor cannot change its process.
    try:
        same = start_time(pid) == start
    except OSError:
        os.close(pidfd)
        raise
    if same:
        return pidfd
    os.close(pidfd)
    return None


def _cause(entry: _Watched) -> str:
    status = _status_by_info(entry.pidfd)
    if status is None:
        with suppress(OSError):
            status = _status_of_zombie(entry.pid, entry.start)
    if status is None:
        # Reaped between the two looks: from now on the kernel tells it through the pidfd.
        status = _status_by_info(entry.pidfd)
    if status is None:
        return "process exited"
    if os.WIFSIGNALED(status):
        return f"process exited: killed by {_signal_name(os.WTERMSIG(status))}"
    return f"process exited: exit code {os.WEXITSTATUS(status)}"


def _status_by_info(pidfd: int) -> int | None:
    buffer = bytearray(_PIDFD_INFO.size)
    struct.pack_into("=Q", buffer, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, buffer)
    except OSError:
        return None
    values = _PIDFD_INFO.unpack(buffer)
    return values[-1] if values[0] & _INFO_EXIT else None


def _status_of_zombie(pid: int, start: int) -> int | None:
    fields = _stat(pid)
    if fields is None or fields[0] != b"Z" or int(fields[19]) != start:
        return None
    return int(fields[-1])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)
