"""What the collector promises of its own records, and of ends and levels.

Knows one record and the state of the run before it; numbers and parents are ``check_trace``'s.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentrund.model import kinds
from agentrund.model.event import Record
from agentrund.model.run_state import CLEAN_CAUSES, OK, RUNNING, RunState

_ERROR = "error"


def check_record(record: Record, before: RunState) -> Iterator[str]:
    """Everything that is wrong with ``record``, given the run as it was ``before`` it."""
    if kinds.is_reserved(record.type):
        yield from _own(record)
    if record.type == kinds.SOURCE_EXIT:
        yield from _exit(record)
    elif record.type == kinds.RUN_END:
        yield from _end(record, before)
    elif record.type == kinds.LOG:
        yield from _level(record)


def _own(record: Record) -> Iterator[str]:
    """No name, no parent, no sender: these are facts about the run, told by the collector."""
    for key in ("name", "parent_seq"):
        if getattr(record, key) is not None:
            yield f"{record.type} has a {key}; it must be null"
    # Who comes when all is over is marked as everything late is.
    if record.src is not None and not (record.type == kinds.SOURCE_JOIN and record.late):
        yield f"{record.type} has src; it is the collector's own"


def _exit(record: Record) -> Iterator[str]:
    cause = record.payload.get("cause")
    # A cause that was moved to a blob is an object, and none of the two short clean ones.
    wanted = OK if isinstance(cause, str) and cause in CLEAN_CAUSES else _ERROR
    if record.status != wanted:
        yield f"status of a source.exit with cause {cause!r} is {record.status}; it must be {wanted}"


def _end(record: Record, before: RunState) -> Iterator[str]:
    if record.late:
        return
    for attempt in before.attempts:
        if attempt.n == record.attempt and attempt.outcome != RUNNING:
            yield f"run.end of attempt {attempt.n}, which had ended ({attempt.outcome}), is not marked late"


def _level(record: Record) -> Iterator[str]:
    level = record.payload.get("level")
    if isinstance(level, str) and record.status != level.upper():
        yield f"status of a log at level {level!r} is {record.status}; it must be {level.upper()}"
