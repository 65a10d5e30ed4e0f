"""Event: one normalised fact from any door, before it has a number. Record: the same with its number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]

MAX_NAME: Final = 4096
"""Characters of ``name``, ``span``, ``parent``, ``status``: repeated in listings and never spilled."""
MAX_SESSION: Final = 1024
"""Characters of a session id: it stands in run.start, in the index and in a link's name."""


@dataclass(slots=True)
class Event:
    """One fact about an agent, as a receiver hands it over.

    ``ts`` is epoch seconds, or None for "when it arrived". ``payload`` is the parsed object and
    ``raw`` its own JSON bytes where those are clean enough to be stored as they came (strict JSON,
    UTF-8, no duplicate keys, nothing to spill); None means the payload must be encoded.
    ``n`` is the sender's counter. ``src`` holds further keys of the record's ``src`` object
    (an OTLP item's trace, span and half); ``k``, ``id``, ``n`` and ``span`` are filled in when numbered.
    """

    type: str
    name: str | None = None
    span: str | None = None
    parent: str | None = None
    ts: float | None = None
    status: str | None = None
    dur_ms: int | None = None
    payload: Json = field(default_factory=dict)
    raw: bytes | None = None
    n: int | None = None
    src: Json | None = None


@dataclass(slots=True)
class Record:
    """One line of trace.jsonl. ``ts`` has millisecond precision; ``iso`` shows the same millisecond.

    ``payload`` is parsed; ``raw`` holds its bytes as they stand in the line, where known.
    ``src`` is None on the collector's own lifecycle records.
    """

    run_id: str
    seq: int
    attempt: int
    ts: float
    iso: str
    type: str
    name: str | None
    parent_seq: int | None
    status: str | None
    dur_ms: int | None
    payload: Json
    src: Json | None = None
    raw: bytes | None = None

    @property
    def late(self) -> bool:
        """Whether it arrived after its attempt had ended."""
        return self.src is not None and self.src.get("late") is True


@dataclass(slots=True)
class OpenStep:
    """An opening record that no closing record has answered yet. ``span`` is the sender's id for it."""

    seq: int
    type: str
    name: str | None
    ts: float
    span: str
    source: str
