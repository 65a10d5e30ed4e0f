"""Every promise a single line of trace.jsonl makes, given the lines before it.

Knows lines, not files: the caller reads, keeps the offset and says where a finding is. Memory is one
byte a record, for what its number opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import msgspec

from agentrund.formats import trace_jsonl
from agentrund.model import kinds
from agentrund.model.errors import Damaged
from agentrund.model.event import Record

KEYS: Final = (
    "run_id", "seq", "attempt", "ts", "iso", "type", "name", "parent_seq", "status", "dur_ms", "payload",
)  # fmt: skip
_OPENERS: Final = {kind: number for number, kind in enumerate(sorted(kinds.OPENERS), start=1)}
_GAP_MAX: Final = 1 << 20
"""A damaged number must not make us reserve memory for all the numbers before it."""


class LineCheck:
    """Takes the lines of one trace in order."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._expected: int | None = 1
        self._attempt = 0
        self._opened = bytearray(1)

    def feed(self, line: bytes) -> tuple[Record | None, list[str]]:
        """The record of a line, if it is one, and everything that is wrong with it."""
        try:
            record = trace_jsonl.decode(line)
            keys = tuple(msgspec.json.decode(line, type=dict[str, Any]))
        except (Damaged, msgspec.MsgspecError, UnicodeDecodeError) as error:
            # The numbers that follow are judged by each other.
            self._expected = None
            return None, [error.message if isinstance(error, Damaged) else f"not a trace record: {error}"]
        return record, [*self._number(record, keys), *_written(line, record), *self._place(record)]

    def _number(self, record: Record, keys: tuple[str, ...]) -> Iterator[str]:
        if keys not in (KEYS, (*KEYS, "src")):
            yield f"keys are {', '.join(keys)}; they must be {', '.join(KEYS)}, then src or nothing"
        if record.run_id != self._run_id:
            yield f"run_id is {record.run_id}, the folder is {self._run_id}"
        if self._expected is not None and record.seq != self._expected:
            yield f"seq is {record.seq}, {self._expected} must follow"
        self._expected = record.seq + 1
        if not _same_millisecond(record):
            yield f"ts {record.ts:.3f} and iso {record.iso} are different times"

    def _place(self, record: Record) -> Iterator[str]:
        if record.type in (kinds.RUN_START, kinds.RUN_RESUME):
            wanted = kinds.RUN_START if record.attempt == 1 else kinds.RUN_RESUME
            if record.attempt != self._attempt + 1 or record.type != wanted:
                yield f"{record.type} opens attempt {record.attempt} after attempt {self._attempt}"
            self._attempt = record.attempt
        elif record.attempt != self._attempt and not (record.late and 0 < record.attempt < self._attempt):
            yield f"attempt is {record.attempt} during attempt {self._attempt}"
        yield from self._parent(record)
        self._remember(record)

    def _parent(self, record: Record) -> Iterator[str]:
        parent = record.parent_seq
        if parent is None:
            return
        opened = self._opened[parent] if 0 < parent < min(record.seq, len(self._opened)) else 0
        wanted = kinds.CLOSES.get(record.type)
        if not opened:
            yield f"parent_seq {parent} is no step that was opened before"
        elif wanted is not None and opened != _OPENERS[wanted]:
            yield f"{record.type} cannot close #{parent:04d}, which is no {wanted}"

    def _remember(self, record: Record) -> None:
        gap = record.seq - len(self._opened)
        if gap < 0 or gap > _GAP_MAX:
            return
        self._opened.extend(bytes(gap))
        self._opened.append(_OPENERS.get(record.type, 0))


def _written(line: bytes, record: Record) -> Iterator[str]:
    """Whether a line is, but for its payload, what is written for its record: no key twice, no blanks."""
    head = trace_jsonl.encode(replace(record, raw=b"", src=None)).removesuffix(b"}\n")
    tail = b"}\n" if record.src is None else b',"src":%b}\n' % trace_jsonl.dump_payload(record.src)
    if not line.startswith(head + b"{") or not line.endswith(b"}" + tail):
        yield "not the bytes that are written for such a record"


def _same_millisecond(record: Record) -> bool:
    try:
        shown = datetime.fromisoformat(record.iso)
    except ValueError:
        return False
    return shown.tzinfo is not None and trace_jsonl.millis(shown.timestamp()) == trace_jsonl.millis(record.ts)
