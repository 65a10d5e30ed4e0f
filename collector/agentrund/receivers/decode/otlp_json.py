"""Export{Trace,Logs,Metrics}ServiceRequest as JSON to items, one after the other.

The body is parsed in one go, which no parser at hand does in steps; reading its items pauses.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from agentrund.model.event import Json
from agentrund.model.otlp import (
    BadItem,
    Item,
    LogItem,
    Resource,
    Scope,
    Signal,
    SpanEvent,
    SpanItem,
    SpanLink,
)
from agentrund.receivers.decode import otlp_json_metrics, strict_json
from agentrund.receivers.decode.otlp_ids import log_id, span_ids
from agentrund.receivers.decode.otlp_json_values import JsonValues, identifier, items, text, whole
from agentrund.receivers.decode.otlp_values import Pause
from agentrund.receivers.decode.protobuf_wire import Malformed

_DECODE: Final = msgspec.json.Decoder().decode
_ITEMS: Final = 32
"""Items between two pauses."""


class _Names(NamedTuple):
    """The three levels of a request."""

    resources: str
    scopes: str
    items: str


_NAMES: Final = {
    Signal.TRACES: _Names("resourceSpans", "scopeSpans", "spans"),
    Signal.LOGS: _Names("resourceLogs", "scopeLogs", "logRecords"),
    Signal.METRICS: _Names("resourceMetrics", "scopeMetrics", "metrics"),
}


@dataclass(slots=True)
class _Around:
    """What an item lies in, what had to be changed to read it, and the size of an average one."""

    resource: Resource
    scope: Scope
    notes: list[str] = field(default_factory=list)
    size: int = 0


def check(signal: Signal, body: bytes) -> Iterator[str | None]:
    """Why items cannot be read. Raises Malformed where the body is no request."""
    for item in decode(signal, body):
        yield item.why if isinstance(item, BadItem) else Pause


def decode(signal: Signal, body: bytes) -> Iterator[Item | None]:
    """The items of a request. Raises Malformed where the body is none."""
    request, notes = _request(body)
    slices = list(_slices(_NAMES[signal], request))
    size = len(body) // max(1, sum(len(found) for _, _, found in slices))
    resources: dict[int, tuple[Resource, list[str]]] = {}
    i = 0
    for resource_fields, scope_fields, found in slices:
        if id(resource_fields) not in resources:
            resources[id(resource_fields)] = _resource(resource_fields)
        resource, of_resource = resources[id(resource_fields)]
        scope, of_scope = _scope(scope_fields)
        around = _Around(resource, scope, [*notes, *of_scope, *of_resource], size)
        for item in found:
            if signal is Signal.METRICS:
                i = yield from _metric(item, i, around)
                continue
            yield _item(signal, item, i, around)
            i += 1
            if i % _ITEMS == 0:
                yield Pause


def _request(body: bytes) -> tuple[Json, list[str]]:
    """The body as an object, and what had to be changed in its text. Raises Malformed."""
    notes: list[str] = []
    try:
        value = _DECODE(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        try:
            value, notes = strict_json.repair(body)
        except ValueError as error:
            raise Malformed(f"no JSON: {error}") from error
    if not isinstance(value, dict):
        raise Malformed("it is no JSON object")
    return value, [f"in its request: {note}" for note in notes]


def _slices(names: _Names, request: Json) -> Iterator[tuple[Any, Any, list[Any]]]:
    """Resource, scope and the items of each scope; the same resource is the same object."""
    for part in items(request, names.resources):
        resource = part.get("resource") or {}
        for scope in items(part, names.scopes):
            yield resource, scope.get("scope") or {}, items(scope, names.items, of_kind=object)


def _resource(fields: Any) -> tuple[Resource, list[str]]:
    values = JsonValues()
    try:
        found = values.attributes(items(fields, "attributes"))
    except Malformed as error:
        return Resource(), [f"its resource cannot be read: {error}"]
    return Resource(found), [f"in its resource: {note}" for note in values.notes()]


def _scope(fields: Any) -> tuple[Scope, list[str]]:
    try:
        return Scope(text(fields, "name"), text(fields, "version")), []
    except Malformed as error:
        return Scope(), [f"its scope cannot be read: {error}"]


def _metric(fields: Any, i: int, around: _Around) -> Generator[Item | None, None, int]:
    """The data points of a metric, the first of them number ``i``; returns the number after the last."""
    try:
        points = otlp_json_metrics.points(
            fields, around.resource, around.scope, notes=around.notes, size=around.size, i=i
        )
        for point in points:
            yield point
            i = point.i + 1
            if i % _ITEMS == 0:
                yield Pause
    except Malformed as error:
        yield BadItem(i, around.resource, Signal.METRICS, str(error), around.size)
        i += 1
    return i


def _item(signal: Signal, fields: Any, i: int, around: _Around) -> Item:
    read: Callable[[Any, int, _Around], Item] = _span if signal is Signal.TRACES else _log
    try:
        return read(fields, i, around)
    except Malformed as error:
        return BadItem(i, around.resource, signal, str(error), around.size)


def _span(fields: Any, i: int, around: _Around) -> SpanItem:
    trace, span, parent = span_ids(
        identifier(fields, "traceId"), identifier(fields, "spanId"), identifier(fields, "parentSpanId")
    )
    values = JsonValues()
    start, end = whole(fields, "startTimeUnixNano"), whole(fields, "endTimeUnixNano")
    status = fields.get("status") or {}
    code = whole(status, "code", Status.StatusCode.Value)
    return SpanItem(
        i,
        around.resource,
        around.scope,
        trace,
        span,
        parent,
        text(fields, "name"),
        whole(fields, "kind", Span.SpanKind.Value),
        start or end,
        end or start,
        whole(fields, "flags"),
        text(fields, "traceState"),
        code == Status.STATUS_CODE_ERROR,
        code,
        text(status, "message"),
        values.attributes(items(fields, "attributes")),
        [_event(event, values) for event in items(fields, "events")],
        [_link(link, values) for link in items(fields, "links")],
        _dropped(fields, "attributes", "events", "links"),
        [*values.notes(), *around.notes],
        around.size,
    )


def _event(fields: Any, values: JsonValues) -> SpanEvent:
    at = whole(fields, "timeUnixNano") / 1e9
    return SpanEvent(text(fields, "name"), at, values.attributes(items(fields, "attributes")))


def _link(fields: Any, values: JsonValues) -> SpanLink:
    trace, span = identifier(fields, "traceId"), identifier(fields, "spanId")
    return SpanLink(trace.hex(), span.hex(), values.attributes(items(fields, "attributes")))


def _log(fields: Any, i: int, around: _Around) -> LogItem:
    values = JsonValues()
    notes: list[str] = []
    return LogItem(
        i,
        around.resource,
        around.scope,
        log_id("trace id", identifier(fields, "traceId"), 16, notes),
        log_id("span id", identifier(fields, "spanId"), 8, notes),
        text(fields, "eventName"),
        whole(fields, "timeUnixNano") or whole(fields, "observedTimeUnixNano"),
        whole(fields, "severityNumber", SeverityNumber.Value),
        text(fields, "severityText"),
        values.value(fields.get("body")),
        values.attributes(items(fields, "attributes")),
        whole(fields, "flags"),
        _dropped(fields, "attributes"),
        [*notes, *values.notes(), *around.notes],
        around.size,
    )


def _dropped(fields: Any, *kinds: str) -> Json:
    counts = {kind: whole(fields, f"dropped{kind.capitalize()}Count", bits=32) for kind in kinds}
    return {kind: count for kind, count in counts.items() if count}
