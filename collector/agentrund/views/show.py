"""One run or one event for reading: outline, summary, records; as text or as JSON.

Derived files are used where they are newer than the trace; a run that is still going (or was copied)
is derived anew, in memory. Three levels of detail: ``low`` says how it went, ``high`` what happened,
``full`` everything, with blobs put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import msgspec

from agentrund.formats import escape, figures, layout, trace_jsonl
from agentrund.formats.derive import Derived, derive
from agentrund.model.errors import Damaged
from agentrund.model.event import Json, Record
from agentrund.model.run_state import RUNNING
from agentrund.views import trace
from agentrund.views.folder import Root
from agentrund.views.seek import whole_lines
from agentrund.views.whole import whole

LOW: Final = "low"
HIGH: Final = "high"
FULL: Final = "full"
DETAILS: Final = (FULL, HIGH, LOW)


def outline(root: Root, run_id: str) -> bytes:
    """The outline of a run as it is now."""
    stored = _stored(root, run_id, layout.OUTLINE)
    return _derive(root, run_id).outline if stored is None else stored


def summary(root: Root, run_id: str, now: float) -> str:
    """How a run went, in a few lines; of one that goes on also how long before ``now`` it last grew."""
    facts = _parsed(root, run_id, _analytics(root, run_id))
    cost = facts.get("cost")
    usd = cost.get("cost_usd") if isinstance(cost, dict) else None
    shown = {
        "run": facts.get("run_id"),
        "session": facts.get("session_id"),
        "status": _status(root, run_id, facts, now),
        "started": facts.get("started_at"),
        "ended": facts.get("ended_at"),
        "active": f"{facts.get('active_sec')}s",
        "attempts": facts.get("attempts"),
        "llm calls": facts.get("llm_calls"),
        "tool calls": facts.get("tool_calls"),
        "errors": _errors(facts),
        "cost": figures.money(usd) if isinstance(usd, (int, float)) else None,
    }
    return "".join(
        f"{key:<10}  {'-' if value is None else escape.one_line(str(value))}\n"
        for key, value in shown.items()
    )


def _status(root: Root, run_id: str, facts: Json, now: float) -> str | None:
    status = facts.get("status")
    if status != RUNNING:
        return status if isinstance(status, str) else None
    with trace.open_trace(root, run_id) as file:
        quiet = now - trace.changed_at(file) / 1e9
    return f"running, last record {max(quiet, 0):.0f} s ago"


def _errors(facts: Json) -> int | None:
    """How many events have an ``error_type``, those beyond the list's end included."""
    listed, omitted = facts.get("errors"), facts.get("errors_omitted")
    if not isinstance(listed, list):
        return None
    return len(listed) + (omitted if isinstance(omitted, int) else 0)


def texts(root: Root, run_id: str) -> Iterator[str]:
    """Every event of a run, in full, one after the other."""
    for record in trace.records(root, run_id):
        yield event_text(whole(root, record), FULL) + "\n"


def jsonl(root: Root, run_id: str, detail: str) -> Iterator[bytes]:
    """One line a record: ``high`` as it stands in the trace, ``low`` without payload, ``full`` with blobs."""
    if detail == HIGH:
        with trace.open_trace(root, run_id) as file:
            yield from whole_lines(file)
        return
    for record in trace.records(root, run_id):
        yield event_json(replace(record, payload={}) if detail == LOW else whole(root, record))


def document(root: Root, run_id: str, detail: str) -> Iterator[bytes]:
    """One JSON document, in pieces: ``analytics``, ``meta``, and (but for ``low``) ``events``."""
    yield b'{"analytics":' + _analytics(root, run_id).strip()
    yield b',"meta":' + (_stored(root, run_id, layout.META) or _derive(root, run_id).meta).strip()
    if detail != LOW:
        yield b',"events":['
        between = b""
        for line in jsonl(root, run_id, detail):
            yield between + line.rstrip(b"\n")
            between = b","
        yield b"]"
    yield b"}\n"


def event(root: Root, run_id: str, seq: int, detail: str) -> Record:
    """One event: ``full`` with blobs, ``high`` as in the trace, ``low`` without payload."""
    record = trace.find(root, run_id, seq)
    if detail == FULL:
        return whole(root, record)
    return replace(record, payload={}) if detail == LOW else record


def event_json(record: Record) -> bytes:
    """A record as a line of trace.jsonl."""
    return trace_jsonl.encode(record)


def event_text(record: Record, detail: str) -> str:
    """A record for people: its head, its payload, and its ``text`` as it was written."""
    head = {
        "time": record.iso,
        "attempt": record.attempt,
        "parent": None if record.parent_seq is None else figures.anchor(record.parent_seq),
        "status": record.status,
        "took": None if record.dur_ms is None else figures.seconds(record.dur_ms),
        "src": None if record.src is None else " ".join(f"{k}={v}" for k, v in record.src.items()),
    }
    title = f"{figures.anchor(record.seq)} {record.type} {record.name or '-'}"
    parts = [escape.one_line(title)]
    parts += [f"  {k:<8} {escape.one_line(str(v))}" for k, v in head.items() if v is not None]
    if detail != LOW:
        rest = {k: v for k, v in record.payload.items() if k != "text" or not isinstance(v, str)}
        if rest:
            parts.append(_harmless(msgspec.json.format(msgspec.json.encode(rest), indent=2).decode()))
        if isinstance(text := record.payload.get("text"), str):
            parts += ["", _harmless(text)]
    return "\n".join(parts) + "\n"


def _harmless(text: str) -> str:
    return escape.block(text).decode()


def _analytics(root: Root, run_id: str) -> bytes:
    stored = _stored(root, run_id, layout.ANALYTICS)
    return _derive(root, run_id).analytics if stored is None else stored


def _parsed(root: Root, run_id: str, analytics: bytes) -> Json:
    try:
        return msgspec.json.decode(analytics, type=Json)
    except msgspec.MsgspecError as error:
        path = root.path / layout.run_dir(run_id) / layout.ANALYTICS
        raise Damaged(
            f"not valid: {error}", path=str(path), offset=0, hint=f"`agentrund rebuild {run_id}`"
        ) from error


def _stored(root: Root, run_id: str, name: str) -> bytes | None:
    """A derived file, None where it is missing or older than the trace."""
    with trace.open_trace(root, run_id) as file:
        written = trace.changed_at(file)
    try:
        with root.open(f"{layout.run_dir(run_id)}/{name}") as file:
            return file.read() if trace.changed_at(file) >= written else None
    except FileNotFoundError:
        return None


def _derive(root: Root, run_id: str) -> Derived:
    return derive(trace.records(root, run_id))
