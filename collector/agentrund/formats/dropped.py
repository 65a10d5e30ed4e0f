"""Every hole the collector knows of, summed: what was lost, refused, cut or rejected before it was an event.

An OTLP sender says itself what its SDK has dropped of a span or log record. The rest stands in the
collector's own marks: ``log`` records at level WARNING without a name or a parent, with a count under
one of the known keys.
"""

from __future__ import annotations

from typing import Final

from agentrund.model import kinds
from agentrund.model.event import Json, Record
from agentrund.model.source import DOOR_OTLP

_PREFIXES: Final = ("dropped_", "rejected_")
_SDK_DROPS: Final = ("attributes", "events", "links")
_KEYS_MAX: Final = 32
"""A sender may imitate a mark; it cannot make the document grow."""


class Dropped:
    """Sums the marks of one run."""

    def __init__(self) -> None:
        self._sums: dict[str, int] = {"lost": 0, "refused": 0, "dropped_attributes": 0, "rejected_spans": 0}

    def feed(self, record: Record) -> None:
        """Count a record in: one that is a mark, or tells what its sender's SDK has dropped."""
        payload = record.payload
        if record.src is not None and record.src.get("k") == DOOR_OTLP:
            self._feed_sdk(payload)
        if record.type != kinds.LOG:
            return
        if payload.get("level") != "WARNING" or record.name is not None or record.parent_seq is not None:
            return
        if record.src is not None and "lost_to" in record.src:
            self._add("lost", payload.get("lost"))
        if isinstance(payload.get("refused"), str):
            self._add("refused", 1)
        for key, value in payload.items():
            if key.startswith(_PREFIXES) and (key in self._sums or len(self._sums) < _KEYS_MAX):
                self._add(key, value)

    def _feed_sdk(self, payload: Json) -> None:
        otel = payload.get("otel")
        dropped = otel.get("dropped") if isinstance(otel, dict) else None
        if isinstance(dropped, dict):
            for what in _SDK_DROPS:
                self._add(f"dropped_{what}", dropped.get(what))

    def _add(self, key: str, count: object) -> None:
        if isinstance(count, int) and not isinstance(count, bool) and count > 0:
            self._sums[key] = self._sums.get(key, 0) + count

    def as_json(self) -> Json:
        """``dropped``: the common keys always, others where they came up."""
        return self._sums
