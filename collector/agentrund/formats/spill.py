"""Which payload values move to a blob, and what stands in their place.

Any string longer than the limit (UTF-8 bytes) is stored in full elsewhere. ``text`` leaves
``text_ref``, ``preview`` and ``bytes`` beside its neighbours, as the seed has it; any other value
leaves ``{"ref", "preview", "bytes"}`` where it stood.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from agentrund.model.event import Json

PREVIEW_LINES: Final = 12
PREVIEW_BYTES: Final = 2048

Put = Callable[[bytes], str]
"""Stores a blob and returns its path relative to the run folder."""


def preview(text: str) -> str:
    """The first 12 lines, at most 2,048 UTF-8 bytes, cut at a character."""
    head = "\n".join(text[:PREVIEW_BYTES].split("\n")[:PREVIEW_LINES])
    return head.encode()[:PREVIEW_BYTES].decode(errors="ignore")


def spill(payload: Json, limit: int, put: Put) -> Json:
    """A payload without long strings, each of them given to ``put``. Equal to the input if none is long."""
    out: Json = {}
    for key, value in payload.items():
        if key == "text" and isinstance(value, str):
            data = value.encode()
            if len(data) > limit:
                out["text_ref"] = put(data)
                out["preview"] = preview(value)
                out["bytes"] = len(data)
                continue
        out[key] = _spill_value(value, limit, put)
    return out


def _spill_value(value: Any, limit: int, put: Put) -> Any:
    if isinstance(value, str):
        # A character takes at most four bytes: most strings need no encoding to be known short.
        if len(value) * 4 <= limit or len(data := value.encode()) <= limit:
            return value
        return {"ref": put(data), "preview": preview(value), "bytes": len(data)}
    if isinstance(value, dict):
        return {key: _spill_value(item, limit, put) for key, item in value.items()}
    if isinstance(value, list):
        return [_spill_value(item, limit, put) for item in value]
    return value
