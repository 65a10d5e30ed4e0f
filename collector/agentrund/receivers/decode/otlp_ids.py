"""The ids of spans and log records: which are ids at all, and their hex form."""

from __future__ import annotations

from typing import Final

from agentrund.receivers.decode.protobuf_wire import Malformed

_NO_ID: Final = frozenset({b"", bytes(8), bytes(16)})
_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8


def span_ids(trace: bytes, span: bytes, parent: bytes) -> tuple[str, str, str | None]:
    """A span's trace id, its own and its parent's, None for a root. Raises Malformed where one is none."""
    for name, value, length in (("trace id", trace, _TRACE_BYTES), ("span id", span, _SPAN_BYTES)):
        if value in _NO_ID or len(value) != length:
            raise Malformed(_bad(name, value))
    if parent in _NO_ID:
        return trace.hex(), span.hex(), None
    if len(parent) != _SPAN_BYTES:
        raise Malformed(_bad("parent span id", parent))
    return trace.hex(), span.hex(), parent.hex()


def log_id(name: str, value: bytes, length: int, repairs: list[str]) -> str | None:
    """An id of a log record; none is normal, a bad one is no reason to lose the record."""
    if value in _NO_ID:
        return None
    if len(value) != length:
        repairs.append(f"{_bad(name, value)}: left out")
        return None
    return value.hex()


def _bad(name: str, value: bytes) -> str:
    return f"{name} has {len(value)} bytes" if value.strip(b"\0") else f"{name} is missing"
