"""Work that may fail for a while (a full disk) and must be done in the end: links, rows, metadata."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from agentrund.model.errors import Unavailable

log: Final = logging.getLogger(__name__)


class Chores:
    """Does each chore now, or keeps it for the next ``retry``. A newer chore of the same key replaces it."""

    def __init__(self) -> None:
        self._waiting: dict[str, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def do(self, key: str, chore: Callable[[], None]) -> None:
        """Run ``chore``; if the disk refuses, remember it under ``key``."""
        self._waiting.pop(key, None)
        try:
            chore()
        except (OSError, Unavailable) as error:
            log.warning("%s has to wait: %s", key, error)
            self._waiting[key] = chore

    def retry(self) -> None:
        """Try what waits, in order."""
        for key, chore in list(self._waiting.items()):
            try:
                chore()
            except (OSError, Unavailable):
                continue
            self._waiting.pop(key, None)
