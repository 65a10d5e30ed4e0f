"""What has come over OTLP, also in the state folder: ``doctor`` reads it there when no collector runs."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from agentrund.formats import layout
from agentrund.receivers.wire import Wire
from agentrund.service.runs import Runs

SAVE_EVERY_S: Final = 30.0


class WireFile:
    """Written now and then, and at a stop; what an earlier collector has left there is replaced."""

    def __init__(self, runs: Runs, wire: Wire) -> None:
        self._runs = runs
        self._wire = wire
        self._saved_at = runs.clock.monotonic()

    def tick(self, now: float) -> None:
        """Write it, where something has changed and the last time is a while ago."""
        if now - self._saved_at >= SAVE_EVERY_S:
            self._saved_at = now
            self.save()

    def save(self) -> None:
        """Write it, where something has changed."""
        if self._wire.changed:
            self._wire.changed = False
            data = msgspec.json.encode(self._wire.as_json())
            self._runs.chores.do("wire.json", partial(self._runs.root.write_state, layout.WIRE, data))
