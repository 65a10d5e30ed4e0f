"""Silence, for sources whose process cannot be watched: who has not been heard of for too long.

Pure: times come in. A gap in our own clock (a suspended machine, a stopped collector) says nothing about
anybody else, so it grants everyone a whole interval.
"""

from __future__ import annotations


class Heartbeats:
    """Last signs of life by source, in monotonic seconds; ``timeout`` is the silence that ends a source."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._heard: dict[str, float] = {}

    def __contains__(self, source: str) -> bool:
        return source in self._heard

    def heard(self, source: str, now: float) -> None:
        """A sign of life."""
        self._heard[source] = now

    def forget(self, source: str) -> None:
        """The source has left, or is watched otherwise."""
        self._heard.pop(source, None)

    def grant(self, now: float) -> None:
        """Our own clock has jumped: everybody starts a fresh interval."""
        for source in self._heard:
            self._heard[source] = now

    def silent(self, now: float) -> list[str]:
        """Sources silent for longer than the timeout."""
        return [source for source, heard in self._heard.items() if now - heard > self.timeout]
