"""``agentrund doctor``: the root and its disk, clock, limits, and what waits in the spool folder."""

from __future__ import annotations

import os
import resource
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from agentrund.formats import layout
from agentrund.model.ids import created_at
from agentrund.service import cgroups, file_systems, spool_files
from agentrund.service.check import NOTE, OK, PROBLEM, Check

LEAST_FREE: Final = 1 << 30
LEAST_INODES: Final = 10_000
LEAST_DESCRIPTORS: Final = 1024
AHEAD_S: Final = 60.0
_MIB: Final = 1 << 20


def root(path: Path) -> Iterator[Check]:
    """Rights, file system, space and clock."""
    try:
        info = path.stat()
    except FileNotFoundError:
        yield Check("root", NOTE, f"{path} is not there yet; a collector makes it")
        return
    except OSError as error:
        yield Check("root", PROBLEM, f"{path}: {error.strerror}", "look at its rights")
        return
    if not stat.S_ISDIR(info.st_mode):
        yield Check("root", PROBLEM, f"{path} is no folder", "choose another --root")
        return
    yield _rights(path, info)
    with suppress(OSError):
        yield from _space(path)
    mounts = ""
    with suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    advice = file_systems.advice(file_systems.type_of(info.st_dev, mounts))
    if advice is not None:
        yield Check("file system", PROBLEM, f"{path}: {advice}", "a local disk is safer")
    yield from _clock(path)


def _rights(path: Path, info: os.stat_result) -> Check:
    mode = f"uid {info.st_uid}, mode {stat.S_IMODE(info.st_mode):o}"
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return Check("root", PROBLEM, f"{path} can be written to by others ({mode})", f"chmod go-w {path}")
    if not os.access(path, os.R_OK | os.X_OK):
        hint = "run this as its owner, or name a `group` for the collector"
        return Check("root", PROBLEM, f"{path} cannot be read by uid {os.geteuid()} ({mode})", hint)
    return Check("root", OK, f"{path} ({mode})")


def _space(path: Path) -> Iterator[Check]:
    disk = os.statvfs(path)
    free = disk.f_bavail * disk.f_frsize
    if free < LEAST_FREE:
        hint = "free some: what cannot be written is not acknowledged, and senders wait"
        yield Check("disk", PROBLEM, f"{free // _MIB} MiB are free where the root is", hint)
    else:
        yield Check("disk", OK, f"{free // _MIB} MiB are free where the root is")
    if disk.f_files and disk.f_favail < LEAST_INODES:
        yield Check("disk", PROBLEM, f"only {disk.f_favail} inodes are free", "a run takes about ten")


def _clock(path: Path) -> Iterator[Check]:
    """A run of the future: the clock was set back since, and ids of new runs go on from there."""
    with suppress(OSError):
        newest = max(os.listdir(path / layout.RUNS), key=created_at, default="")  # noqa: PTH208
        ahead = created_at(newest)[0] - time.time()
        if ahead > AHEAD_S:
            message = f"the newest run, {newest}, began {ahead:.0f} s in the future"
            yield Check("clock", PROBLEM, message, "was the clock set back? look at its synchronisation")


def limits(status: Mapping[str, Any] | None) -> Iterator[Check]:
    """Descriptors and memory, of the collector where one answers, else of whoever is started from here."""
    pid = 0 if status is None else int(status.get("pid") or 0)
    with suppress(OSError, ValueError):
        _soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        few = hard != resource.RLIM_INFINITY and hard < LEAST_DESCRIPTORS
        many = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        hint = "every sender takes two; raise the hard limit (ulimit -Hn, LimitNOFILE)" if few else ""
        yield Check("descriptors", PROBLEM if few else OK, f"{many} may be open", hint)
    memory = None if status is None else status.get("memory")
    if isinstance(memory, dict):
        used, most = int(memory.get("used_bytes") or 0), int(memory.get("max_bytes") or 0)
        message = f"{used // _MIB} of {most // _MIB} MiB used"
        if times := memory.get("times_short"):
            hint = "senders had to wait; raise `max_memory`"
            yield Check("memory", PROBLEM, f"{message}; it was short {times} times", hint)
        else:
            yield Check("memory", OK, message)
    elif (limit := cgroups.memory_limit()) is not None:
        yield Check("memory", NOTE, f"the cgroup allows {limit // _MIB} MiB")


def spool(*, running: bool) -> Iterator[Check]:
    """Events that this user's clients could not deliver."""
    folder = spool_files.spool_folder()
    try:
        names = spool_files.names(folder)
    except spool_files.NotTakenError as error:
        yield Check("spool", PROBLEM, f"{folder} is not taken in: {error}", "look whose it is")
        return
    size = 0
    for name in names:
        with suppress(OSError):
            size += (folder / name).lstat().st_size
    if not names:
        yield Check("spool", OK, "nothing waits")
        return
    files = f"{len(names)} files ({size // 1024} KiB) wait in {folder}"
    after = (
        "files of living clients stay until those hand them in" if running else "a collector takes them in"
    )
    yield Check("spool", NOTE, f"{files}; {after}")
