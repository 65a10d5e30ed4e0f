"""What storage refuses: told by all who write, said in one voice (a line a minute, and ``status``).

Whoever writes may also have to wait for us: that is said, but it is no trouble of the storage's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from agentrund.model.errors import Busy
from agentrund.model.event import Json
from agentrund.service.clock import Clock
from agentrund.service.rarely import Rarely

log: Final = logging.getLogger(__name__)

CALM_S: Final = 2.0
"""Without a refusal for so long, and with nothing waiting, storage is well: what waits tries more often."""


class StorageTrouble:
    """The one place refusals are reported to. ``waiting`` says whether something is still to be written."""

    def __init__(self, clock: Clock, waiting: Callable[[], bool]) -> None:
        self._clock = clock
        self._waiting = waiting
        self._rarely = Rarely("storage refuses, senders wait", clock.monotonic)
        self._busy = Rarely("senders wait for us", clock.monotonic)
        self._since: float | None = None
        self._last = 0.0
        self._count = 0
        self.last_error: str | None = None

    def refused(self, what: str, error: Exception) -> None:
        """``what`` could not be written and waits."""
        if isinstance(error, Busy):
            self._busy.warn(f"{what}: {error}")
            return
        self.last_error = f"{what}: {error}"
        self._last = self._clock.monotonic()
        if self._since is None:
            self._since, self._count = self._clock.now(), 0
        self._count += 1
        self._rarely.warn(self.last_error)

    def look(self) -> None:
        """Notice that it is over."""
        if self._since is None or self._waiting() or self._clock.monotonic() - self._last < CALM_S:
            return
        log.info("storage takes everything again; it had refused %d times", self._count)
        self._since = None

    def status(self) -> Json:
        """``since`` (ISO 8601, null when all is well), and how many ``refusals`` there were since then."""
        since = None if self._since is None else self._clock.iso(self._since)
        return {"since": since, "refusals": self._count if since else 0}
