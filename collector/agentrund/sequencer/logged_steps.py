"""Steps told by log records: which turn they belong to, and which records tell the halves of one call.

Clients whose logs are their account of a run give their records few ids: a call's request and its
answer may have none in common, and a record may not say in which turn it was written. Both are found
by time, so it does not matter in which order the records come.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agentrund.model.otlp import MappedSpan
    from agentrund.sequencer.trace_tree import Node

START_SLACK_NS: Final = 1_000_000_000
"""A request's own time and the start its answer's duration gives are this close."""
_REMEMBERED: Final = 256
"""Halves of calls, and calls, that something may still be found to belong to."""
TOLD: Final = 4096
"""Records known again by their own id where their call goes by that of its other half."""


class LoggedSteps:
    """The turns and the halves of one tree. Most trees have none, and there are many: it is small then."""

    __slots__ = ("_pairs", "_told", "calls", "turns")

    def __init__(self) -> None:
        self.turns: list[Node] = []
        self.calls: list[Node] = []
        """The last ones."""
        self._pairs: dict[str, deque[Node]] = {}
        self._told: dict[str, None] = {}

    def note(self, node: Node, span: MappedSpan) -> None:
        """A step that is new in the tree."""
        if node.turn:
            self.turns.append(node)
            return
        self.calls.append(node)
        if len(self.calls) > 2 * _REMEMBERED:
            del self.calls[:-_REMEMBERED]
        if span.pair is not None:
            node.asked = span.notice
            self._pairs.setdefault(span.pair, deque(maxlen=_REMEMBERED)).append(node)

    def has_told(self, span: str) -> bool:
        """Whether a record with this id has found its other half."""
        return span in self._told

    def counterpart(self, span: MappedSpan) -> Node | None:
        """The step of which ``span`` tells the other half; it has both then."""
        halves = self._pairs.get(span.pair or "")
        if not halves:
            return None
        found = _answered(span, halves) if span.notice else _asked(span, halves)
        if found is not None:
            halves.remove(found)
            found.asked = True
            self._told[span.span] = None
            if len(self._told) > TOLD:
                del self._told[next(iter(self._told))]
        return found

    def turn_at(self, ns: int) -> Node | None:
        """The turn under way at a time: the last that had begun."""
        begun = [turn for turn in self.turns if turn.start_ns <= ns]
        return max(begun, key=lambda turn: turn.start_ns, default=None)

    def former(self) -> list[Node]:
        """Turns nobody has ended, of which a later one of the same source has begun."""
        if not self.turns:
            return []
        last = max((turn.start_ns for turn in self.turns), default=0)
        return [turn for turn in self.turns if turn.pending and turn.start_ns < last]


def _asked(answer: MappedSpan, halves: deque[Node]) -> Node | None:
    """The request of an answer: the one that began when it did or, where it does not say, last before it."""
    known = answer.start_ns < answer.end_ns
    open_ = [
        n
        for n in halves
        if n.pending
        and (abs(n.start_ns - answer.start_ns) <= START_SLACK_NS if known else n.start_ns <= answer.end_ns)
    ]
    return min(open_, key=lambda n: abs(n.start_ns - answer.start_ns), default=None)


def _answered(request: MappedSpan, halves: deque[Node]) -> Node | None:
    """The call of a request that comes after its answer; where that gives no start, the next to end."""
    done = [n for n in halves if not n.asked and _distance(n, request) is not None]
    return min(done, key=lambda n: _distance(n, request) or 0, default=None)


def _distance(call: Node, request: MappedSpan) -> int | None:
    """How far a call lies from a request of which it may be, None where it cannot be its."""
    if call.start_ns < call.end_ns:
        apart = abs(call.start_ns - request.start_ns)
        return apart if apart <= START_SLACK_NS else None
    return call.end_ns - request.start_ns if call.end_ns >= request.start_ns else None
