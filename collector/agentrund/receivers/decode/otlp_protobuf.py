"""Export{Trace,Logs,Metrics}ServiceRequest as protobuf bytes to items, one after the other.

At most 32 items, or a few hundred values of one item, lie between two pauses.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as MetricMessage
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
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
from agentrund.receivers.decode import otlp_protobuf_metrics
from agentrund.receivers.decode.otlp_ids import log_id, span_ids
from agentrund.receivers.decode.otlp_repair import repaired
from agentrund.receivers.decode.otlp_values import LARGE, STEP, Pause, Values
from agentrund.receivers.decode.protobuf_wire import LENGTH, Field, Malformed, fields

_ITEMS: Final = 32
"""Items between two pauses: with their mapping about 2 ms."""

_IDS: Final = (1, 2, 4)
"""Fields of a Span: its trace's id, its own, its parent's."""

_M = TypeVar("_M", bound=Message)
_Slice = tuple[bytes, bytes, int, int]
"""The bytes of a resource and a scope, and where an item begins and ends."""
_Build = Callable[[Any, list[str], int, int, "_Around"], Generator[None, None, Item]]
"""Makes an item of its message, what was repaired in it, its size in bytes and its number."""


@dataclass(slots=True)
class _Around:
    """What an item lies in, and what had to be changed in it to read it."""

    resource: Resource = field(default_factory=Resource)
    scope: Scope = field(default_factory=Scope)
    of_resource: list[str] = field(default_factory=list)
    of_scope: list[str] = field(default_factory=list)


def check(signal: Signal, body: bytes) -> Iterator[str | None]:
    """Why items cannot be read, without reading their values. Raises Malformed where it is no request."""
    for n, piece in enumerate(_slices(body), 1):
        if piece is None or n % STEP == 0:
            yield Pause
        if piece is not None:
            try:
                yield from _judge(signal, body, *piece[2:])
            except (Malformed, DecodeError) as error:
                yield str(error)


def _judge(signal: Signal, body: bytes, start: int, stop: int) -> Generator[None, None, None]:
    """Raises Malformed or DecodeError where ``_item`` will; of a large item only its fields are found."""
    if stop - start > LARGE:
        found = {field.number: body[field.start : field.stop] for field in _ids(body, start, stop)}
        trace, span, parent = (found.get(number, b"") for number in _IDS)
    else:
        message: Any
        message, _ = yield from _parse(_MESSAGES[signal], body[start:stop])
        if signal is Signal.TRACES:
            trace, span, parent = message.trace_id, message.span_id, message.parent_span_id
    if signal is Signal.TRACES:
        span_ids(trace, span, parent)


def _ids(body: bytes, start: int, stop: int) -> Iterator[Field]:
    return (field for field in fields(body, start, stop) if field.number in _IDS)


def decode(signal: Signal, body: bytes) -> Iterator[Item | None]:
    """The items of a request. Raises Malformed as ``check`` does."""
    resource_bytes = scope_bytes = b""
    around = _Around()
    i = 0
    for piece in _slices(body):
        if piece is None:
            yield Pause
            continue
        of_resource, of_scope, start, stop = piece
        if of_resource is not resource_bytes:
            resource_bytes = of_resource
            around.resource, around.of_resource = yield from _resource(resource_bytes)
        if of_scope is not scope_bytes:
            scope_bytes = of_scope
            around.scope, around.of_scope = yield from _scope(scope_bytes)
        if signal is Signal.METRICS:
            i = yield from _metric(body[start:stop], i, around)
            continue
        yield (yield from _item(signal, body[start:stop], i, around))
        i += 1
        if i % _ITEMS == 0:
            yield Pause


def _slices(body: bytes) -> Iterator[_Slice | None]:
    """The request taken apart. The same resource or scope is the same object from slice to slice."""
    for _, at, end in _submessages(body, 0, len(body), 1):
        yield from _resource_slices(body, at, end)


def _resource_slices(body: bytes, at: int, end: int) -> Iterator[_Slice | None]:
    parts = list(_submessages(body, at, end, 2))
    # Repeated parts of a message that may appear once are merged, which is what concatenation does.
    resource = b"".join(body[start:stop] for number, start, stop in parts if number == 1)
    for number, start, stop in parts:
        if number != 1:
            yield from _scope_slices(body, start, stop, resource)


def _scope_slices(body: bytes, at: int, end: int, resource: bytes) -> Iterator[_Slice | None]:
    items: list[tuple[int, int]] = []
    scope = b""
    for n, (number, start, stop) in enumerate(_submessages(body, at, end, 2), 1):
        if number == 1:
            scope += body[start:stop]
        else:
            items.append((start, stop))
        if n % STEP == 0:
            yield Pause
    for start, stop in items:
        yield resource, scope, start, stop


def _submessages(body: bytes, at: int, end: int, highest: int) -> Iterator[tuple[int, int, int]]:
    """Messages in fields 1 to ``highest``: number, start and end; other fields are passed over."""
    for number, wire_type, _, start, stop in fields(body, at, end):
        if number > highest:
            continue
        if wire_type != LENGTH:
            raise Malformed(f"field {number} at byte {start} is no message")
        yield number, start, stop


def _resource(data: bytes) -> Generator[None, None, tuple[Resource, list[str]]]:
    try:
        message, repairs = yield from _parse(ResourceMessage, data)
    except (Malformed, DecodeError) as error:
        return Resource(), [f"its resource cannot be read: {error}"]
    values = Values()
    found = yield from values.attributes_of(message.attributes, len(data))
    return Resource(found), [f"in its resource: {note}" for note in (*repairs, *values.notes())]


def _scope(data: bytes) -> Generator[None, None, tuple[Scope, list[str]]]:
    try:
        message, repairs = yield from _parse(InstrumentationScope, data)
    except (Malformed, DecodeError) as error:
        return Scope(), [f"its scope cannot be read: {error}"]
    return Scope(message.name, message.version), [f"in its scope: {note}" for note in repairs]


def _parse(kind: type[_M], data: bytes) -> Generator[None, None, tuple[_M, list[str]]]:
    try:
        return kind.FromString(data), []
    except DecodeError:
        data, repairs = yield from repaired(data, kind)
        return kind.FromString(data), repairs


def _metric(data: bytes, i: int, around: _Around) -> Generator[Item | None, None, int]:
    """The data points of a metric, the first of them number ``i``; returns the number after the last."""
    size = len(data)
    try:
        message, repairs = yield from _parse(MetricMessage, data)
        del data
        notes = [*repairs, *around.of_scope, *around.of_resource]
        points = otlp_protobuf_metrics.points(
            message, around.resource, around.scope, notes=notes, size=size, i=i
        )
        for point in points:
            yield point
            if point is not None:
                i = point.i + 1
                if i % _ITEMS == 0:
                    yield Pause
    except (Malformed, DecodeError) as error:
        yield BadItem(i, around.resource, Signal.METRICS, str(error), size)
        i += 1
    return i


def _item(signal: Signal, data: bytes, i: int, around: _Around) -> Generator[None, None, Item]:
    """One item. Its bytes are let go of once they are parsed: it may be as large as a request."""
    kind, build = _MESSAGES[signal], _BUILDERS[signal]
    size = len(data)
    try:
        message, repairs = yield from _parse(kind, data)
        del data
        return (yield from build(message, repairs, size, i, around))
    except (Malformed, DecodeError) as error:
        return BadItem(i, around.resource, signal, str(error), size)


def _span(
    message: Span, repairs: list[str], size: int, i: int, around: _Around
) -> Generator[None, None, SpanItem]:
    trace, span, parent = span_ids(message.trace_id, message.span_id, message.parent_span_id)
    read = Values()
    found = yield from read.attributes_of(message.attributes, size)
    events: list[SpanEvent] = []
    for event in message.events:
        values = yield from read.attributes_of(event.attributes, size)
        events.append(SpanEvent(event.name, event.time_unix_nano / 1e9, values))
    links = [
        SpanLink(link.trace_id.hex(), link.span_id.hex(), read.attributes(link.attributes))
        for link in message.links
    ]
    return SpanItem(
        i,
        around.resource,
        around.scope,
        trace,
        span,
        parent,
        message.name,
        message.kind,
        message.start_time_unix_nano or message.end_time_unix_nano,
        message.end_time_unix_nano or message.start_time_unix_nano,
        message.flags,
        message.trace_state,
        message.status.code == Status.STATUS_CODE_ERROR,
        message.status.code,
        message.status.message,
        found,
        events,
        links,
        _dropped(message, "attributes", "events", "links"),
        [*repairs, *read.notes(), *around.of_scope, *around.of_resource],
        size,
    )


def _log(
    message: LogRecord, repairs: list[str], size: int, i: int, around: _Around
) -> Generator[None, None, LogItem]:
    read = Values()
    found = yield from read.attributes_of(message.attributes, size)
    body = (yield from read.value_in_steps(message.body, STEP)) if size > LARGE else read.value(message.body)
    return LogItem(
        i,
        around.resource,
        around.scope,
        log_id("trace id", message.trace_id, 16, repairs),
        log_id("span id", message.span_id, 8, repairs),
        message.event_name,
        message.time_unix_nano or message.observed_time_unix_nano,
        message.severity_number,
        message.severity_text,
        body,
        found,
        message.flags,
        _dropped(message, "attributes"),
        [*repairs, *read.notes(), *around.of_scope, *around.of_resource],
        size,
    )


def _dropped(message: Any, *kinds: str) -> Json:
    counts = {kind: getattr(message, f"dropped_{kind}_count") for kind in kinds}
    return {kind: count for kind, count in counts.items() if count}


_MESSAGES: Final[dict[Signal, type[Message]]] = {
    Signal.TRACES: Span,
    Signal.LOGS: LogRecord,
    Signal.METRICS: MetricMessage,
}
_BUILDERS: Final[dict[Signal, _Build]] = {Signal.TRACES: _span, Signal.LOGS: _log}
