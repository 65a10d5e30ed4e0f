"""Payloads in full: what was moved to a blob is put back where it stood."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from agentrund.formats import layout
from agentrund.formats.spilled import is_ref, pointer_of
from agentrund.model.errors import Damaged
from agentrund.model.event import Json, Record
from agentrund.views.folder import Root

_TEXT_KEYS: Final = frozenset({"preview", "bytes"})


def whole(root: Root, record: Record) -> Record:
    """``record`` with every blob read. Raises Damaged where one is missing."""
    payload = record.payload
    out: Json = {}
    has_ref = is_ref(payload.get("text_ref"))
    for key, value in payload.items():
        if has_ref and key == "text_ref":
            out["text"] = read_blob(root, record.run_id, value)
        elif not (has_ref and key in _TEXT_KEYS):
            out[key] = _value(root, record.run_id, value)
    return replace(record, payload=out, raw=None)


def read_blob(root: Root, run_id: str, ref: str) -> str:
    """The text of one blob of a run. Raises Damaged."""
    path = f"{layout.run_dir(run_id)}/{ref}"
    try:
        return root.read(path).decode("utf-8", "replace")
    except FileNotFoundError:
        raise Damaged(
            "the trace names this blob, but it is not there",
            path=str(root.path / path),
            offset=0,
            hint="`--detail high` shows the event without it",
        ) from None


def _value(root: Root, run_id: str, value: Any) -> Any:
    if isinstance(value, dict):
        pointer = pointer_of(value)
        if pointer is not None:
            return read_blob(root, run_id, pointer[1])
        return {key: _value(root, run_id, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_value(root, run_id, item) for item in value]
    return value
