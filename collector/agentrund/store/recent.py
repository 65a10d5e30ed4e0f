"""Which digests came in the last minutes.

Kept in generations, each forgotten as a whole: none is taken out alone. All but the newest are packed: a
digest costs its bytes there, and not the hundred more of an object in a set. Pure: no I/O, no clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Final

_PARTS: Final = 4
"""Generations that make up the time, and the number, that is promised."""


@dataclass(slots=True)
class _Generation:
    """What came from ``first`` to ``newest``, monotonic seconds."""

    first: float
    newest: float
    digests: set[bytes] = field(default_factory=set)
    packed: bytes = b""
    """Of one that is closed: its digests in order, one after the other."""
    count: int = 0

    def add(self, digest: bytes) -> None:
        self.digests.add(digest)
        self.count = len(self.digests)

    def close(self) -> None:
        self.packed = b"".join(sorted(self.digests))
        self.digests = set()

    def has(self, digest: bytes) -> bool:
        if not self.packed:
            return digest in self.digests
        size = len(digest)

        def nth(n: int) -> bytes:
            return self.packed[n * size : (n + 1) * size]

        return nth(bisect_left(range(self.count), digest, key=nth)) == digest


class Recent:
    """Digests of one length, for at least ``keep_s`` seconds, as long as they are among the last ``most``."""

    def __init__(self, keep_s: float, most: int) -> None:
        self._keep_s = keep_s
        self._most = most
        self._generations: deque[_Generation] = deque()

    def __len__(self) -> int:
        return sum(one.count for one in self._generations)

    def has(self, digest: bytes, now: float) -> bool:
        """Whether it came in time; ``now`` is monotonic."""
        while self._generations and self._generations[0].newest <= now - self._keep_s:
            self._generations.popleft()
        return any(one.has(digest) for one in self._generations)

    def add(self, digest: bytes, now: float) -> None:
        """It came now."""
        last = self._generations[-1] if self._generations else None
        if last is None or now - last.first > self._keep_s / _PARTS or last.count * _PARTS >= self._most:
            if last is not None:
                last.close()
            last = _Generation(now, now)
            self._generations.append(last)
        last.newest = now
        last.add(digest)
        if len(self) - self._generations[0].count >= self._most:
            self._generations.popleft()
