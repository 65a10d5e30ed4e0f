"""Which items of a request are in runs already, when the intake journal gives it again after a restart.

A request leaves the journal when all its items are in traces, and until then a kill brings all of it back:
also what was stored of it, in runs that go on and in runs that have ended.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentrund.model.event import Json
from agentrund.model.otlp import MappedLog, MappedMetric, MappedSpan

_OPEN, _CLOSE = "open", "close"


class StoredItems:
    """Of the requests ``rqs``, what the records of runs tell of their items."""

    def __init__(self, rqs: Iterable[int] = ()) -> None:
        self._told: dict[int, set[tuple[int, str | None]]] = {rq: set() for rq in rqs}

    def __bool__(self) -> bool:
        return bool(self._told)

    def note(self, src: Json) -> None:
        """A record, or a line of metrics, that came of an item, by its ``src``.

        And of the log records whose content it tells.
        """
        self._add(src.get("rq"), src.get("i"), src.get("half"))
        for rq, i in src.get("logs") or ():
            self._add(rq, i, None)

    def _add(self, rq: object, i: object, half: str | None) -> None:
        if isinstance(rq, int) and isinstance(i, int) and (told := self._told.get(rq)) is not None:
            told.add((i, half))

    def has(self, rq: int, item: MappedSpan | MappedLog | MappedMetric) -> bool:
        """Whether nothing more can come of an item: what is written last of it is."""
        told = self._told.get(rq)
        if told is None:
            return False
        if isinstance(item, MappedLog | MappedMetric):
            return (item.i, None) in told
        if item.secondary and (item.i, None) in told:
            return True  # what it added to a call that was written
        return (item.i, _OPEN if item.notice else _CLOSE) in told

    def done(self, rq: int) -> None:
        """A request has been taken as a whole."""
        self._told.pop(rq, None)
