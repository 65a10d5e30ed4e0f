"""How much memory the kernel lets this process have: the limits of its cgroup and of those around it.

Reads ``/proc`` and ``/sys``, version 1 and 2, and decides nothing about what follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

_OWN: Final = Path("/proc/self/cgroup")
_TREE: Final = Path("/sys/fs/cgroup")
_UNLIMITED: Final = 1 << 60
"""Version 1 writes a number near 2^63 where there is none."""


def memory_limit(own: Path = _OWN, tree: Path = _TREE) -> int | None:
    """The smallest limit that holds for this process, in bytes; None where there is none, or none is told."""
    found = []
    for file in _limit_files(_text(own), tree):
        with suppress(ValueError):
            found.append(int(_text(file)))
    least = min(found, default=_UNLIMITED)
    return least if least < _UNLIMITED else None


def _limit_files(own: str, tree: Path) -> Iterator[Path]:
    """Where limits may stand. In a container the path may be one outside of it: then the top is its own."""
    for line in own.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            top, name = tree, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = tree / "memory", "memory.limit_in_bytes"
        else:
            continue
        below = PurePosixPath(path.lstrip("/"))
        for folder in (below, *below.parents):
            yield top / folder / name


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
