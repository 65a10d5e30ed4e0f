"""Work that may fail for a while (a full disk) and must be done in the end: links, rows, metadata."""

from __future__ import annotations

from collections.abc import Callable

from agentrund.model.errors import Unavailable

Refused = Callable[[str, Exception], None]
"""Told what storage refused, and why."""


class Chores:
    """Does each chore now, or keeps it for the next ``retry``. A newer chore of the same key replaces it."""

    def __init__(self, refused: Refused) -> None:
        self._refused = refused
        self._waiting: dict[str, Callable[[], object]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def do(self, key: str, chore: Callable[[], object]) -> None:
        """Run ``chore``; if the disk refuses, remember it under ``key``."""
        self._waiting.pop(key, None)
        try:
            chore()
        except (OSError, Unavailable) as error:
            self._waiting[key] = chore
            self._refused(key, error)

    def drop(self, key: str) -> None:
        """It need not be done any more."""
        self._waiting.pop(key, None)

    def retry(self) -> None:
        """Try what waits, in order."""
        for key, chore in list(self._waiting.items()):
            try:
                chore()
            except (OSError, Unavailable) as error:
                self._refused(key, error)
                continue
            self._waiting.pop(key, None)
