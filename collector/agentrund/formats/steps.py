"""The open steps of a run, paired by seq, and which agent encloses what.

A closing record names its opener by ``parent_seq``, everything else names the opener around it. Memory
is bounded by the open steps: a closed one is remembered while a child of it is open, and the last
1,024 closed ones besides, for children that come after their parent's end. A child that comes later still
counts as having no parent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agentrund.formats.usage import CALL_KEYS
from agentrund.model import kinds
from agentrund.model.event import Json, Record

_REMEMBERED: Final = 1024


@dataclass(slots=True, eq=False)
class Step:
    """An opening record and what is known of it until its closing record has come."""

    seq: int
    type: str
    name: str | None
    ts: float
    attempt: int
    told: Json
    """What a prompt's payload says of the call, without its text."""
    parent: Step | None
    """The step around it; once closed, the nearest step around it that is still open."""
    owner: str | None
    """Name of the agent that encloses it."""
    closed: bool = False
    covered: bool = False
    """Whether a closed agent around it has stated a cost that includes what happens here."""

    @property
    def inside(self) -> str | None:
        """Name of the agent that encloses what happens within this step."""
        return (self.name or "-") if self.type == kinds.AGENT_START else self.owner


class Steps:
    """Follows the records of one run."""

    def __init__(self) -> None:
        self.open: dict[int, Step] = {}
        self._recent: dict[int, Step] = {}

    def feed(self, record: Record) -> Step | None:
        """The step that a record opens or closes; for any other record the step around it, if any."""
        opens = kinds.CLOSES.get(record.type)
        if opens is not None:
            return self._close(record.parent_seq, opens)
        around = self._find(record.parent_seq)
        if record.type not in kinds.OPENERS:
            return around
        step = Step(
            seq=record.seq,
            type=record.type,
            name=record.name,
            ts=record.ts,
            attempt=record.attempt,
            told={key: record.payload[key] for key in CALL_KEYS if key in record.payload},
            parent=around,
            owner=around.inside if around is not None else None,
        )
        self.open[record.seq] = step
        return step

    def _find(self, seq: int | None) -> Step | None:
        if seq is None:
            return None
        return self.open.get(seq) or self._recent.get(seq)

    def _close(self, seq: int | None, opens: str) -> Step | None:
        step = self.open.get(seq) if seq is not None else None
        if step is None or step.type != opens:
            return None
        del self.open[step.seq]
        step.closed = True
        # Closed ancestors are skipped, so a chain of them is not kept alive by its last child.
        while step.parent is not None and step.parent.closed:
            step.covered = step.covered or step.parent.covered
            step.parent = step.parent.parent
        self._recent[step.seq] = step
        if len(self._recent) > _REMEMBERED:
            del self._recent[next(iter(self._recent))]
        return step
