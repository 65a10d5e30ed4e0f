"""All derived files of a run in one streaming pass over its records.

Finalising, rebuilding, showing and verifying all come here, so they agree byte for byte. The result
depends on nothing but the records: no clock, no time zone, no locale.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentrund.formats import document, meta
from agentrund.formats.analytics import AnalyticsFold
from agentrund.formats.index import Row, ended_row
from agentrund.formats.outline import OutlineFold
from agentrund.formats.steps import Steps
from agentrund.model.event import Record
from agentrund.model.run_state import RunState


@dataclass(slots=True, frozen=True)
class Derived:
    """The bytes of the derived files, and the run's row of the index."""

    analytics: bytes
    outline: bytes
    meta: bytes
    row: Row


class Deriver:
    """Takes a run's records in order. ``result`` may be asked for once, after the last one."""

    def __init__(self, run_id: str) -> None:
        self.state = RunState(run_id)
        self._steps = Steps()
        self._analytics = AnalyticsFold()
        self._outline = OutlineFold()

    def feed(self, record: Record) -> str | None:
        """Take one record; returns what ``RunState.apply`` made of it, for whoever renders along."""
        change = self.state.apply(record)
        step = self._steps.feed(record)
        self._analytics.feed(record, step)
        self._outline.feed(record, step)
        return change

    def result(self) -> Derived:
        """The derived files of what was fed."""
        facts = self._analytics.result(self.state, self._steps)
        return Derived(
            analytics=document.encode(facts),
            outline=self._outline.result(self.state, self._steps, facts),
            meta=meta.encode(self.state),
            row=ended_row(self.state, facts),
        )


def derive(records: Iterable[Record]) -> Derived:
    """The derived files of a whole run."""
    deriver: Deriver | None = None
    for record in records:
        if deriver is None:
            deriver = Deriver(record.run_id)
        deriver.feed(record)
    return (deriver or Deriver("")).result()
