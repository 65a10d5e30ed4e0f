"""The rows of an outline as a tree that stays small while a run of any length goes through it.

Decides nesting, folding and what gives way when there are too many rows: equal neighbours become one
row with a count; beyond the cap the oldest finished rows behind the first thousand are only counted. Knows
nothing of how a row looks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

Number = TypeVar("Number", int, float)

ROWS_MAX: Final = 2000
_KEPT_FIRST: Final = 1000
"""Rows that stay whatever comes: how a run begins explains more than its middle."""
_FOLD_FROM: Final = 4
"""Equal neighbours that are folded; up to three are clearer one by one."""

AGENT: Final = "▶"
TOOL: Final = "→"
CALL: Final = "○"
ERROR: Final = "✗"


@dataclass(slots=True, eq=False)
class Row:
    """One row, or several equal ones. ``symbol`` is empty on the row that stands for an attempt."""

    seq: int
    symbol: str
    label: str
    above: Row | None
    status: str | None = None
    """None while it is open."""
    closer: int | None = None
    dur_ms: int | None = None
    cost: float | None = None
    llm: int = 0
    tokens: int = 0
    count: int = 1
    gone: bool = False
    previous: Row | None = None
    next: Row | None = None
    first: Row | None = None
    last: Row | None = None

    @property
    def is_done_leaf(self) -> bool:
        """Whether it has ended and nothing is within it."""
        return self.status is not None and self.first is None

    def equals(self, other: Row | None) -> bool:
        """Whether both say the same, numbers aside."""
        return (
            other is not None
            and other.is_done_leaf
            and (self.symbol, self.label, self.status) == (other.symbol, other.label, other.status)
        )


class Rows:
    """The rows of one run, under one root per attempt."""

    def __init__(self) -> None:
        self._roots: dict[int, Row] = {}
        self._count = 0
        self._made = 0
        self._may_go: deque[Row] = deque()
        self.folded: dict[str, int] = {}
        """Symbol to the number of rows that were only counted."""
        self.folded_from: int | None = None
        self.folded_to = 0

    def root(self, attempt: int) -> Row:
        """The row an attempt's outermost rows are under."""
        root = self._roots.get(attempt)
        if root is None:
            root = self._roots[attempt] = Row(0, "", "", None)
        return root

    def add(self, row: Row) -> bool:
        """Put a row last under ``row.above``; False where the outline is full of rows that cannot go."""
        if self._count >= ROWS_MAX and not self._make_room():
            self._count_out(row)
            return False
        self._made += 1
        self._count += 1
        above = row.above or self.root(0)
        place = above.last
        # Almost always the last; a row found out late takes the place its number gives it.
        while place is not None and place.seq > row.seq:
            place = place.previous
        self._link(row, above, place)
        if row.status is not None:
            self.done(row)
        return True

    @staticmethod
    def _link(row: Row, above: Row, place: Row | None) -> None:
        row.above, row.previous = above, place
        row.next = above.first if place is None else place.next
        if place is None:
            above.first = row
        else:
            place.next = row
        if row.next is None:
            above.last = row
        else:
            row.next.previous = row

    def done(self, row: Row) -> None:
        """A row has ended: fold it with equal neighbours."""
        if row.gone:
            return
        if not self._merge(row) and self._made > _KEPT_FIRST:
            self._may_go.append(row)

    def _merge(self, row: Row) -> bool:
        if not row.is_done_leaf:
            return False
        run = [row]
        while row.equals(run[0].previous) and (before := run[0].previous) is not None:
            run.insert(0, before)
        while row.equals(run[-1].next) and (after := run[-1].next) is not None:
            run.append(after)
        if len(run) < _FOLD_FROM and all(part.count == 1 for part in run):
            return False
        if len(run) == 1:
            return False
        into = run[0]
        for part in run[1:]:
            into.count += part.count
            into.llm += part.llm
            into.tokens += part.tokens
            into.dur_ms = _sum(into.dur_ms, part.dur_ms)
            into.cost = _sum(into.cost, part.cost)
            into.closer = part.closer
            self._remove(part)
        return into is not row

    def _remove(self, row: Row) -> None:
        above = row.above
        if above is None:
            return
        if row.previous is None:
            above.first = row.next
        else:
            row.previous.next = row.next
        if row.next is None:
            above.last = row.previous
        else:
            row.next.previous = row.previous
        row.gone = True
        self._count -= 1

    def _make_room(self) -> bool:
        while self._may_go:
            row = self._may_go.popleft()
            if row.gone or not row.is_done_leaf:
                continue
            self._remove(row)
            self._count_out(row)
            above = row.above
            if above is not None and above.symbol and above.is_done_leaf and above.seq > 0:
                self._may_go.append(above)
            return True
        return False

    def _count_out(self, row: Row) -> None:
        self.folded[row.symbol] = self.folded.get(row.symbol, 0) + row.count
        if self.folded_from is None or row.seq < self.folded_from:
            self.folded_from = row.seq
        self.folded_to = max(self.folded_to, row.closer or row.seq)

    def walk(self, attempt: int) -> Iterator[tuple[int, Row]]:
        """The rows of an attempt with their depth, each before what is within it."""
        depth, row = 0, self.root(attempt).first
        while row is not None:
            yield depth, row
            if row.first is not None:
                depth, row = depth + 1, row.first
                continue
            while row is not None and row.next is None:
                depth, row = depth - 1, row.above
            row = row.next if row is not None else None

    def dismantle(self) -> None:
        """Break the circles of rows that know each other: Python may look for such garbage hours later."""
        for attempt, root in self._roots.items():
            for _, row in list(self.walk(attempt)):
                row.above = row.previous = row.last = None
            root.last = None


def _sum(a: Number | None, b: Number | None) -> Number | None:
    return b if a is None else a if b is None else a + b
