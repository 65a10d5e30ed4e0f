"""Which file systems a root had better not lie on, by the kernel's table of mounts."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

log: Final = logging.getLogger(__name__)

_NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs"}
)
_MOUNTS: Final = Path("/proc/self/mountinfo")


def type_of(device: int, mounts: str) -> str | None:
    """The type of a device's file system. ``mounts`` is the text of ``/proc/self/mountinfo``."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        mount, _, source = line.partition(" - ")
        fields = mount.split()
        if len(fields) > 2 and fields[2] == wanted and source:  # noqa: PLR2004 - the device is the third
            return source.split()[0]
    return None


def advice(kind: str | None) -> str | None:
    """What to say to somebody whose root lies on such a file system; None where nothing is to be said."""
    if kind is None:
        return None
    if kind in _NETWORK:
        return f"it is on {kind}: locks may not hold between machines, and appends of two machines interleave"
    if kind.startswith("fuse"):
        return f"it is on {kind}: whether locks and appends hold depends on the program behind it"
    return None


def warn(path: str, device: int) -> None:
    """Say so, where a root had better lie elsewhere."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # not Linux, or /proc is hidden: nothing is known
    text = advice(type_of(device, mounts))
    if text is not None:
        log.warning("root %s: %s; a local disk is safer", path, text)
