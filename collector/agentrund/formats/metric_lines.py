"""metrics.jsonl: one data point a line, beside the trace and never part of it; ``src`` comes last.

Keys that say nothing are left out. A file that has reached its bound ends in a line of kind ``full`` that
counts what was left out; it is written over in place, so it never changes its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from agentrund.formats.trace_jsonl import dump_payload, millis
from agentrund.model.event import Json
from agentrund.model.otlp import BadItem, MetricItem, Point

UNREADABLE: Final = "unreadable"
"""Kind of the line of a metric that could not be read."""
FULL: Final = "full"

_SOURCE: Final = re.compile(rb'"rq":(\d{1,20}),"i":(\d{1,20})\}\}\n\Z')
"""Nothing a sender says can stand at the end of a line."""
_FULL: Final = b'{"run_id":"%b","name":null,"kind":"full","left_out":%15d}\n'

Iso = Callable[[float], str]
"""Local time with offset of epoch seconds."""


def encode(point: Point, run_id: str | None, iso: Iso, *, resource: bool = False) -> bytes:
    """The line of a data point, newline included; with ``resource`` all that its resource says is in it."""
    item, attributes = point.metric.item, point.metric.resource.attributes
    said = _unreadable(item) if isinstance(item, BadItem) else _content(item, iso)
    ns = item.time_ns if isinstance(item, MetricItem) else 0
    at = millis(ns / 1e9 if ns else point.arrived_at) / 1000
    line = {"run_id": run_id, "ts": at, "iso": iso(at), **said, "service": attributes.get("service.name")}
    if resource:
        line["resource"] = attributes
    line["src"] = {"k": "otlp", "id": point.source, "rq": point.rq, "i": item.i}
    return dump_payload(line) + b"\n"


def encode_full(run_id: str, left_out: int) -> bytes:
    """The line of a file that takes no more, always of the same length."""
    return _FULL % (run_id.encode(), left_out)


def left_out(line: bytes) -> int | None:
    """What the last line of a file that is full counts; None where it is another line."""
    if b'"kind":"full"' not in line:
        return None
    found = _object(line)
    count = found.get("left_out") if found is not None and found.get("kind") == FULL else None
    return count if isinstance(count, int) else None


def source_of(line: bytes) -> tuple[int, int] | None:
    """Request and item that a line came of; None for a line without, or one that is torn."""
    match = _SOURCE.search(line, max(0, len(line) - 64))
    return None if match is None else (int(match[1]), int(match[2]))


def problem(line: bytes, run_id: str) -> str | None:
    """What is wrong with a line of a run's file; None where it is good."""
    found = _object(line)
    if found is None:
        return "not a metric point"
    if found.get("run_id") != run_id:
        return "of another run"
    if not isinstance(found.get("kind"), str):
        return "a metric point without a kind"
    if source_of(line) is None and left_out(line) is None:
        return "a metric point without its source"
    return None


def _content(item: MetricItem, iso: Iso) -> Json:
    """What a point says, without what says nothing."""
    metric = item.metric
    said: Json = {
        "name": metric.name,
        "kind": metric.kind,
        "unit": metric.unit,
        "temporality": metric.temporality,
        "monotonic": metric.monotonic,
        "start": iso(item.start_ns / 1e9) if item.start_ns else None,
    }
    around: Json = {
        "description": metric.description,
        "metadata": metric.metadata,
        "scope": item.scope.name,
        "scope_version": item.scope.version,
        "repairs": item.repairs,
    }
    return {
        **{key: value for key, value in said.items() if value not in (None, "")},
        **(item.values or {}),
        "attributes": item.attributes,
        **{key: value for key, value in around.items() if value},
    }


def _unreadable(item: BadItem) -> Json:
    return {"name": None, "kind": UNREADABLE, "error": item.why, "bytes": item.size}


def _object(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
