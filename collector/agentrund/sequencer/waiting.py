"""Which items of a trace wait on when its others are released: those of which more is still to be told.

Pure. Three wait: content for its call, spans of a client whose log records are the account for those, and
a process's part of a trace for the call it was made in, which another process tells when that has ended.
"""

from __future__ import annotations

from agentrund.model.otlp import MappedSpan
from agentrund.sequencer.otlp_run import OtlpRun
from agentrund.sequencer.otlp_trace import Trace
from agentrund.sequencer.producers import Producers
from agentrund.sequencer.signals import Accounts
from agentrund.sequencer.trace_hold import CONTENT_S, HOLD_ITEMS, HOLD_S, Held


def sort_out(
    trace: Trace,
    items: list[Held],
    run: OtlpRun | None,
    producers: Producers,
    accounts: Accounts,
    *,
    now: float,
) -> tuple[list[Held], list[Held]]:
    """The ``items`` of a trace that are released at ``now``, and those that wait on; ``run`` is its own."""
    called = _called(trace, items, run, producers)
    ripe: list[Held] = []
    waiting: list[Held] = []
    for held in items:
        waits = held.source in called and now < held.at + HOLD_S
        waits = waits or not _is_ripe(trace, held, producers, accounts, now)
        (waiting if waits else ripe).append(held)
    return ripe, waiting


def is_complete(trace: Trace, run: OtlpRun | None, producers: Producers) -> bool:
    """Whether nothing more is to be waited for by what a trace holds: its root is there.

    Spans that only fill what log records tell wait for those, also when all of them are there.
    """
    if trace.hold.secondary:
        return False
    return trace.tree.is_rooted(trace.hold.sources, called=not _is_left(run, producers))


def is_deserted(run: OtlpRun | None, gone: set[str], producers: Producers) -> bool:
    """Whether a run has nobody any more who could tell of it, now that these are ``gone``."""
    return run is not None and not gone.isdisjoint(run.members) and _is_left(run, producers)


def _is_left(run: OtlpRun | None, producers: Producers) -> bool:
    if run is None or run.ended:
        return False
    return all(producers.get(source).exited_at is not None for source in run.members)


def _called(trace: Trace, items: list[Held], run: OtlpRun | None, producers: Producers) -> set[str]:
    """Sources whose part of the trace waits for their caller's, though they have ended themselves."""
    if len(items) >= HOLD_ITEMS:
        return set()
    found: set[str] = set()
    for held in items:
        if (
            held.source not in found
            and isinstance(held.item, MappedSpan)
            and trace.tree.awaits_caller(held.item.span)
        ):
            found.add(held.source)
    others = {held.source for held in items}.union(() if run is None else run.members)
    return {source for source in found if _may_be_called(others - {source}, producers)}


def _may_be_called(others: set[str], producers: Producers) -> bool:
    """Whether a caller is still to come: nobody else is known yet, or somebody else lives."""
    return not others or any(producers.get(other).exited_at is None for other in others)


def _is_ripe(trace: Trace, held: Held, producers: Producers, accounts: Accounts, now: float) -> bool:
    item = held.item
    if producers.get(held.source).exited_at is not None:
        return True
    if isinstance(item, MappedSpan):
        return not item.secondary or now >= held.at + HOLD_S or accounts.is_told(item, held.source)
    return item.fills is None or now >= held.at + CONTENT_S or trace.tree.node(item.span) is not None
