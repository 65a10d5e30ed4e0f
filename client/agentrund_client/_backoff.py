"""When to try to connect again."""

from __future__ import annotations

import time

# One attempt costs about 20 µs, so 5 s is a polite rate for a collector that may never come.
_FIRST, _LAST = 0.05, 5.0


class Backoff:
    """Delays from 50 ms, doubled up to 5 s; `at` is the next attempt on the monotonic clock (0: at once)."""

    def __init__(self, source: str) -> None:
        self.at = 0.0
        self._delay = 0.0
        # Spread by source, so that a thousand agents do not all come back in the same millisecond.
        self._share = 1 - sum(source.encode()) % 64 / 128

    def fail(self) -> None:
        """An attempt failed (or may yet): the next one later."""
        self._delay = min(_LAST, self._delay * 2 or _FIRST)
        self.at = time.monotonic() + self._delay * self._share

    def reset(self) -> None:
        """The collector answered: the next attempt, whenever it is needed, at once."""
        self._delay = self.at = 0.0
