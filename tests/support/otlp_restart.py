"""A collector that starts again: what its OTLP sequencer knows, it knows from the records of runs."""

from __future__ import annotations

from collections.abc import Iterable

from agentrund.model.event import Record
from agentrund.sequencer.otlp_commands import RunKey
from agentrund.sequencer.otlp_restore import RestoredRun
from agentrund.sequencer.otlp_runs import OtlpRuns


def restore(runs: OtlpRuns, records: Iterable[Record], now: float, *, ended: bool = False) -> RunKey | None:
    """Put one run back from its records."""
    restored = RestoredRun(runs, now)
    for record in records:
        restored.take(record)
    return restored.finish(ended=ended)
