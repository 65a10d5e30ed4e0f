"""index.jsonl: one row a run, each in a slot that is padded with blanks so that it can be rewritten in place.

Decides keys, padding and how long a last error may be. A row is compact JSON: ``"status":"running"``
and ``"run_id":"…"`` can be searched for as bytes.
"""

from __future__ import annotations

from typing import Final

import msgspec
import orjson

from agentrund.formats import figures, summary
from agentrund.model.errors import Damaged
from agentrund.model.event import Json
from agentrund.model.run_state import RUNNING, RunState, said

Row = Json
"""The seed's keys, in its order."""

KEYS: Final = (
    "run_id",
    "session_id",
    "started_at",
    "status",
    "active_sec",
    "cost_usd",
    "llm_calls",
    "tool_calls",
    "errors",
    "framework",
    "model",
    "last_error",
)

_ERROR_MAX: Final = 160
"""Bytes of a last error, as JSON: it must fit a slot that was made before anything went wrong."""
_SLOT_UNIT: Final = 64
_ROOM: Final = {
    "status": "crashed",
    "active_sec": 999_999_999.99,
    "cost_usd": 999_999.999999,
    "llm_calls": 999_999_999,
    "tool_calls": 999_999_999,
    "errors": 999_999_999,
    "last_error": "x" * (_ERROR_MAX - 2),
}
"""The longest values a run may come to have."""


def starting_row(run_id: str, session_id: str | None, started_at: str, metadata: Json) -> Row:
    """The row of a run about to begin."""
    return {
        "run_id": run_id,
        "session_id": session_id,
        "started_at": started_at,
        "status": RUNNING,
        "active_sec": 0.0,
        "cost_usd": None,
        "llm_calls": 0,
        "tool_calls": 0,
        "errors": 0,
        "framework": _text(metadata.get("framework")),
        "model": _text(metadata.get("model")),
        "last_error": None,
    }


def running_row(state: RunState) -> Row:
    """The row of a run with an attempt under way."""
    totals = state.totals
    started = state.attempts[0].started_iso if state.attempts else ""
    return starting_row(state.run_id, state.session_id, started, state.metadata) | {
        "status": summary.status(state),
        "active_sec": summary.active_sec(state),
        "cost_usd": None if totals.reported_usd is None else round(totals.reported_usd, 6),
        "llm_calls": totals.llm_calls,
        "tool_calls": totals.tool_calls,
        "errors": totals.errors,
        "last_error": fitting(summary.last_error(state), totals.last_error_seq),
    }


def ended_row(state: RunState, facts: Json) -> Row:
    """The row of a run whose analytics are ``facts``."""
    return running_row(state) | {
        "cost_usd": facts["cost"]["cost_usd"],
        "errors": len(facts["errors"]) + facts["errors_omitted"],
    }


def _text(value: object) -> str | None:
    return None if value is None else said(value)


def fitting(error: str | None, seq: int | None = None) -> str | None:
    """An error as it fits every slot: what is cut can be read at the anchor that is named."""
    if error is None or len(orjson.dumps(error)) <= _ERROR_MAX:
        return error
    end = f" … {figures.anchor(seq)}" if seq is not None else " …"
    kept = error[: _ERROR_MAX - 2 - len(end)]
    while len(orjson.dumps(kept + end)) > _ERROR_MAX:
        kept = kept[:-1]
    return kept + end


def encode_row(row: Row, slot: int) -> bytes:
    """The row as exactly ``slot`` bytes, newline included. Raises ValueError where it does not fit."""
    data = orjson.dumps(row)
    if len(data) >= slot:
        raise ValueError(f"a row of {len(data)} bytes does not fit a slot of {slot}")
    return data.ljust(slot - 1) + b"\n"


def slot_size(row: Row) -> int:
    """Bytes for a new slot: room for whatever this run's row may come to say."""
    longest = max(len(orjson.dumps(row)), len(orjson.dumps(row | _ROOM))) + 1
    return -(-longest // _SLOT_UNIT) * _SLOT_UNIT


def parse_line(line: bytes, *, path: str = "index.jsonl", offset: int = 0) -> Row | None:
    """The row of one line, None for a blanked slot. Raises Damaged where it is neither."""
    if not line.strip(b" \n"):
        return None
    try:
        row = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(f"not a row: {error}", path, offset) from error
    if not isinstance(row, dict) or not isinstance(row.get("run_id"), str):
        raise _damaged("not a row: no run_id", path, offset)
    return row


def _damaged(message: str, path: str, offset: int) -> Damaged:
    return Damaged(message, path=path, offset=offset, hint="`agentrund reindex` builds the index again")
