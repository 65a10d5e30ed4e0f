"""How long the items of a trace wait before they are numbered, and in which order they then come.

Exporters send a span when it ends: children first, the root last, seconds late. So items of a trace
are held until its local root arrives (and a moment longer, for what is sent beside it), until they
have waited for a batch delay, or until there are too many. Times are monotonic seconds, given by the
caller; span times are the sender's epoch and have nothing to do with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from agentrund.model.otlp import MappedLog, MappedSpan

HOLD_S: Final = 6.0
"""The exporters' batch delay (5 s) and one second."""
SETTLE_S: Final = 0.5
"""What a program flushes at its end comes within milliseconds: spans first, then logs."""
HOLD_ITEMS: Final = 2000
CONTENT_S: Final = 60.0
"""A record that only tells the content of a call waits for that call's span, however slow the call."""

_ITEM_BYTES: Final = 3000
"""A span of a dozen attributes, mapped, without their text."""


@dataclass(slots=True, frozen=True)
class Held:
    """A mapped item, which intake record it is from, which source sent it, and when it arrived."""

    rq: int
    source: str
    item: MappedSpan | MappedLog
    at: float


def held_size(item: MappedSpan | MappedLog) -> int:
    """Bytes of memory an item takes, about: its objects, and its text as it came and as it is written."""
    return _ITEM_BYTES + 2 * item.size


class TraceHold:
    """The items of one trace that have no number yet."""

    __slots__ = ("_items", "deadline", "secondary", "size")

    def __init__(self) -> None:
        self._items: list[Held] = []
        self.deadline = 0.0
        self.size = 0
        self.secondary = False
        """Whether spans are among them that log records may tell."""

    def __len__(self) -> int:
        return len(self._items)

    def add(self, held: Held) -> None:
        """Hold an item. The one that may wait the shortest decides for all."""
        wait = CONTENT_S if isinstance(held.item, MappedLog) and held.item.fills is not None else HOLD_S
        self.deadline = min(self.deadline, held.at + wait) if self._items else held.at + wait
        self._items.append(held)
        self.secondary = self.secondary or (isinstance(held.item, MappedSpan) and held.item.secondary)
        self.size += held_size(held.item)

    @property
    def sources(self) -> set[str]:
        """Whose items are held."""
        return {held.source for held in self._items}

    def settle(self, now: float) -> None:
        """Wait for nothing but what is on its way: the root is there, or the process is gone."""
        self.deadline = min(self.deadline, now + SETTLE_S)

    def due(self, now: float) -> bool:
        """Whether the batch is to be released."""
        return bool(self._items) and (now >= self.deadline or len(self._items) >= HOLD_ITEMS)

    def take(self) -> list[Held]:
        """Release the batch, in order of arrival."""
        items, self._items, self.size, self.secondary = self._items, [], 0, False
        return items


class Half(IntEnum):
    """Which event of a step; the values are the order at one and the same time."""

    START = 0
    POINT = 1
    END = 2


@dataclass(slots=True, eq=False)
class Step:
    """Something to put in order: a start and an end, or a point (``start_ns`` only).

    ``outer`` is the step of the same batch that encloses it. ``halves`` says which of its events
    there are.
    """

    start_ns: int
    end_ns: int
    outer: Step | None
    halves: tuple[Half, ...]


def in_time_order(steps: Iterable[Step]) -> list[tuple[Step, Half]]:
    """All events of ``steps`` by time; at one time starts outside in, then points, then ends inside out.

    A clock that puts a start before its outer step's start does not count: a start never comes
    before the start of what encloses it, an end never before its own start.
    """
    begun: dict[Step, tuple[int, int]] = {}
    entries: list[tuple[int, Half, int, int, Step]] = []
    for n, step in enumerate(steps):
        start, depth = _begin(step, begun)
        for half in step.halves:
            if half is Half.END:
                entries.append((max(start, step.end_ns), half, -depth, n, step))
            else:
                entries.append((start, half, depth, n, step))
    entries.sort(key=lambda entry: entry[:4])
    return [(step, half) for _, half, _, _, step in entries]


def _begin(step: Step, begun: dict[Step, tuple[int, int]]) -> tuple[int, int]:
    """When a step starts at the earliest, and how deep it lies; of a circle one lies around the others."""
    chain: dict[Step, None] = {}
    at: Step | None = step
    while at is not None and at not in begun and at not in chain:
        chain[at] = None
        at = at.outer
    start, depth = (0, -1) if at is None or at in chain else begun[at]
    for inner in reversed(chain):
        start, depth = max(start, inner.start_ns), depth + 1
        begun[inner] = (start, depth)
    return start, depth
