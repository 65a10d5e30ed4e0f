"""The only place that reads a clock."""

from __future__ import annotations

import time
from datetime import datetime


class Clock:
    """Wall time for people, monotonic time for intervals, local ISO strings cached by the second."""

    def __init__(self) -> None:
        self._second = -1
        self._prefix = ""
        self._offset = ""

    def now(self) -> float:
        """Epoch seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def iso(self, ts: float) -> str:
        """Local time with offset and three decimals: ``2026-08-30T14:23:14.512+05:45``."""
        second, milli = divmod(round(ts * 1000), 1000)
        if second != self._second:
            local = datetime.fromtimestamp(second).astimezone()
            text = local.isoformat(timespec="seconds")
            self._second, self._prefix, self._offset = second, text[:19], text[19:]
        return f"{self._prefix}.{milli:03d}{self._offset}"
