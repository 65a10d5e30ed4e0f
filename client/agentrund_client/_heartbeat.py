"""When the next sign of life is due: the collector asks for them where it cannot see our process."""

from __future__ import annotations

import time


class Heartbeat:
    """Times are monotonic seconds. Not thread-safe: the link's lock covers it."""

    def __init__(self) -> None:
        self._every = 0.0
        self._next = 0.0

    def ask(self, every: float) -> None:
        """One is wanted every so many seconds from now on; 0: none."""
        self._every = every
        self._next = time.monotonic() + every

    @property
    def at(self) -> float | None:
        """When the next one is due, None where none is wanted."""
        return self._next if self._every else None

    def take(self) -> bool:
        """Whether one is due; the next one is a whole interval later then."""
        if not self._every or time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + self._every
        return True
