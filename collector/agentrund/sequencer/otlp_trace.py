"""One trace as ``OtlpRuns`` keeps it: its spans' places, what of it is held, and which run it is of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from agentrund.model.otlp import MappedLog, MappedSpan, Peer
from agentrund.sequencer.otlp_run import OtlpRun
from agentrund.sequencer.trace_hold import Held, TraceHold
from agentrund.sequencer.trace_tree import TraceTree

_NO_TRACE: Final = "process:"
_PAST: Final = "/past"


@dataclass(slots=True, eq=False)
class Trace:
    """What is known of one trace id, or of the items of a process that have none."""

    id: str
    last_arrival: float
    tree: TraceTree = field(default_factory=TraceTree)
    hold: TraceHold = field(default_factory=TraceHold)
    run: OtlpRun | None = None
    session: str | None = None
    run_id: str | None = None

    @property
    def is_process(self) -> bool:
        """Whether it is none: the items of a process that name no trace."""
        return self.id.startswith(_NO_TRACE)

    @property
    def is_past(self) -> bool:
        """Whether it holds what an earlier process of a session had told, and came after a later one's."""
        return self.id.endswith(_PAST)

    @property
    def is_empty(self) -> bool:
        """Whether only its id is known, which all that comes for it names again."""
        return self.is_process and not self.hold and not self.tree

    @property
    def is_over(self) -> bool:
        """Whether its root has ended and nothing is missing."""
        return bool(self.tree.roots) and not self.tree.holes()


@dataclass(slots=True, eq=False)
class Taking:
    """A request while its items are taken: which traces hold some of them, and what is not held."""

    rq: int
    peer: Peer
    now: float
    touched: dict[Trace, None] = field(default_factory=dict)
    at_once: dict[Trace, list[Held]] = field(default_factory=dict)


def no_trace(source: str, session: str | None, *, past: bool = False) -> str:
    """Where the items of a process without a trace are held; each session apart."""
    own = _NO_TRACE + source if session is None else f"{_NO_TRACE}{source}/{session}"
    return own + _PAST if past else own


def is_at_once(item: MappedSpan | MappedLog) -> bool:
    """Whether an item is written when it comes."""
    return item.notice or item.logged if isinstance(item, MappedSpan) else item.at_once


def give_time(item: MappedSpan | MappedLog, at: float) -> None:
    """An item without a time of its own happened when it arrived."""
    if isinstance(item, MappedLog):
        item.time_ns = item.time_ns or int(at * 1e9)
        for step in item.steps:
            give_time(step, at)
    elif item.end_ns == 0:
        item.start_ns = item.end_ns = int(at * 1e9)
