"""Troubles that repeat: said at once, then once a minute with the number of times that were left out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

log: Final = logging.getLogger(__name__)

EVERY_S: Final = 60.0


class Rarely:
    """One kind of trouble. ``now`` gives monotonic seconds; ``about`` opens the line."""

    def __init__(self, about: str, now: Callable[[], float]) -> None:
        self._about = about
        self._now = now
        self._said_at: float | None = None
        self._unsaid = 0

    def warn(self, what: str) -> None:
        """Say it, unless something of this kind was said in the last minute."""
        now = self._now()
        if self._said_at is not None and now - self._said_at < EVERY_S:
            self._unsaid += 1
            return
        more = f"; {self._unsaid} more since the last such line" if self._unsaid else ""
        log.warning("%s: %s (said once a minute%s)", self._about, what, more)
        self._said_at, self._unsaid = now, 0
