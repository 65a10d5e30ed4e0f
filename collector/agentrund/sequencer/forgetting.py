"""What of the runs told over OTLP is forgotten, and when: an ended run is kept for items that come late."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Final, TypeVar

from agentrund.sequencer.otlp_run import OtlpRun
from agentrund.sequencer.otlp_trace import Trace

RUN_S: Final = 3600.0
"""An ended run is remembered this long for late items,"""
ENDED_RUNS: Final = 1000
"""and so many of them at most."""
TREE_S: Final = 600.0
"""A rooted trace that has been quiet this long is forgotten, but for the run it belongs to."""
QUIET_TRACES: Final = 5000
"""Traces that are known and hold nothing; beyond it those go that nothing is missing of."""

AT_ONCE: Final = 500
"""Looked at between two looks at something else: about half a millisecond."""

T = TypeVar("T")
Slowly = Generator[tuple[()], None, T]
"""What comes of a long look; each yield is a good moment to look at something else that adds nothing."""


def slowly(things: Iterable[T], is_wanted: Callable[[T], object]) -> Slowly[list[T]]:
    """Those of many things that are wanted."""
    found: list[T] = []
    for n, thing in enumerate(list(things), 1):
        if is_wanted(thing):
            found.append(thing)
        if n % AT_ONCE == 0:
            yield ()
    return found


def old_runs(runs: Iterable[OtlpRun], traces: Iterable[Trace], now: float) -> Slowly[set[OtlpRun]]:
    """Ended runs nobody is expected to add to any more. ``now`` is monotonic seconds."""
    holding = yield from slowly(traces, lambda trace: trace.hold)
    held = {trace.run for trace in holding}
    ended = sorted((run for run in runs if run.ended), key=lambda run: run.last_arrival)
    many = len(ended) - ENDED_RUNS
    return {
        run for n, run in enumerate(ended) if run not in held and (n < many or now > run.last_arrival + RUN_S)
    }


def empty_traces(runs: Iterable[OtlpRun], traces: Iterable[Trace]) -> Slowly[list[Trace]]:
    """Traces that know nothing, and are of no run that goes on: what is told by log records leaves many."""
    open_ = _of_open_runs(runs)
    return (yield from slowly(traces, lambda trace: trace.is_empty and trace.id not in open_))


def quiet_traces(
    runs: Iterable[OtlpRun], traces: Iterable[Trace], now: float
) -> Slowly[tuple[list[Trace], list[Trace]]]:
    """Traces nothing is expected of any more, and others of which no more than the run is to be kept.

    What is open in a run that goes on is not forgotten, however long it takes.
    """
    open_ = _of_open_runs(runs)
    yield ()
    gone: list[Trace] = []
    over: list[Trace] = []
    quiet = yield from slowly(traces, lambda trace: not trace.hold)
    quiet.sort(key=lambda trace: trace.last_arrival)
    for n, trace in enumerate(quiet):
        if n % AT_ONCE == 0:
            yield ()
        age = now - trace.last_arrival
        if age > RUN_S or n < len(quiet) - QUIET_TRACES:
            goes_on = trace.id in open_ or (trace.run is not None and not trace.run.ended)
            if trace.is_over or not goes_on:
                gone.append(trace)
        elif age > TREE_S and trace.is_over:
            over.append(trace)
    return gone, over


def _of_open_runs(runs: Iterable[OtlpRun]) -> set[str]:
    """Ids of the traces that runs have which go on; those of a process without a trace are bound to none."""
    return {trace for run in runs if not run.ended for trace in run.trees}
