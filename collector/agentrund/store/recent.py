"""Which digests came in the last minutes.

Kept in generations, each forgotten as a whole: a digest costs its bytes and a slot in a set, and none of
them is taken out alone. Pure: no I/O, no clock.
"""

from __future__ import annotations

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


class Recent:
    """Digests, for at least ``keep_s`` seconds, as long as they are of the last ``most`` at least."""

    def __init__(self, keep_s: float, most: int) -> None:
        self._keep_s = keep_s
        self._most = most
        self._generations: deque[_Generation] = deque()

    def __len__(self) -> int:
        return sum(len(one.digests) for one in self._generations)

    def has(self, digest: bytes, now: float) -> bool:
        """Whether it came in time; ``now`` is monotonic."""
        while self._generations and self._generations[0].newest <= now - self._keep_s:
            self._generations.popleft()
        return any(digest in one.digests for one in self._generations)

    def add(self, digest: bytes, now: float) -> None:
        """It came now."""
        last = self._generations[-1] if self._generations else None
        if (
            last is None
            or now - last.first > self._keep_s / _PARTS
            or len(last.digests) * _PARTS >= self._most
        ):
            last = _Generation(now, now)
            self._generations.append(last)
        last.newest = now
        last.digests.add(digest)
        if len(self) - len(self._generations[0].digests) >= self._most:
            self._generations.popleft()
