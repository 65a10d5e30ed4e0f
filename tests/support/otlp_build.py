"""Small OTLP requests and mapped items for tests."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from agentrund.model import kinds
from agentrund.model.event import Event, Json
from agentrund.model.otlp import Fault, MappedLog, MappedSpan, Resource, SpanKind
from agentrund.receivers.decode.protobuf_wire import encode_varint

T0 = 1_790_000_000.0
TRACE = "11" * 16


def hex_id(n: int, length: int = 8) -> str:
    return n.to_bytes(length, "big").hex()


_SCALARS = {
    bool: "bool_value",
    int: "int_value",
    float: "double_value",
    bytes: "bytes_value",
    str: "string_value",
}


def any_value(value: Any) -> AnyValue:
    out = AnyValue()
    if isinstance(value, list):
        out.array_value.values.extend(any_value(v) for v in value)
        out.array_value.SetInParent()
    elif isinstance(value, dict):
        out.kvlist_value.values.extend(key_values(value))
        out.kvlist_value.SetInParent()
    elif value is not None:
        setattr(out, _SCALARS[type(value)], value)
    return out


def field(number: int, data: bytes) -> bytes:
    """A protobuf field of bytes."""
    return encode_varint(number << 3 | 2) + encode_varint(len(data)) + data


def nested(shape: str, levels: int, value: bytes = b"\x18\x01") -> bytes:
    """An encoded AnyValue in as many arrays (``[``) and objects of one key ``k`` (``{``), in turn."""
    heads: list[bytes] = []
    size = len(value)
    for level in reversed(range(levels)):
        numbers = (1, 5) if shape[level % len(shape)] == "[" else (2, 1, 6)
        for number in numbers:
            head = encode_varint(number << 3 | 2) + encode_varint(size)
            if number == 2:
                head = field(1, b"k") + head
            size += len(head)
            heads.append(head)
    return b"".join(reversed(heads)) + value


def key_values(attributes: Json) -> list[KeyValue]:
    return [KeyValue(key=k, value=any_value(v)) for k, v in attributes.items()]


def span(
    n: int = 1,
    parent: int = 0,
    *,
    name: str = "work",
    start: float = T0,
    seconds: float = 1.0,
    attributes: Json | None = None,
    error: str | None = None,
    exception: tuple[str, str] | None = None,
    **fields: Any,
) -> Span:
    """A protobuf span with small ids."""
    out = Span(
        trace_id=bytes.fromhex(TRACE),
        span_id=n.to_bytes(8, "big"),
        parent_span_id=parent.to_bytes(8, "big") if parent else b"",
        name=name,
        start_time_unix_nano=round(start * 1e9),
        end_time_unix_nano=round((start + seconds) * 1e9),
        attributes=key_values(attributes or {}),
        **fields,
    )
    if error is not None:
        out.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=error))
    if exception is not None:
        values = {"exception.type": exception[0], "exception.message": exception[1]}
        out.events.add(name="exception", time_unix_nano=round(start * 1e9), attributes=key_values(values))
    return out


def traces(*spans: Span, resource: Json | None = None, scope: str = "lib") -> bytes:
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add()
    of_resource.resource.attributes.extend(key_values(resource or {}))
    of_scope = of_resource.scope_spans.add()
    of_scope.scope.name = scope
    of_scope.spans.extend(spans)
    return request.SerializeToString()


def logs(*records: LogRecord, resource: Json | None = None, scope: str = "lib") -> bytes:
    request = ExportLogsServiceRequest()
    of_resource = request.resource_logs.add()
    of_resource.resource.attributes.extend(key_values(resource or {}))
    of_scope = of_resource.scope_logs.add()
    of_scope.scope.name = scope
    of_scope.log_records.extend(records)
    return request.SerializeToString()


PROGRAM = Resource({"service.name": "demo", "service.instance.id": "prog"})
OPENERS = {SpanKind.LLM: kinds.LLM_PROMPT, SpanKind.TOOL: kinds.TOOL_CALL}
CLOSERS = {SpanKind.LLM: kinds.LLM_RESPONSE, SpanKind.TOOL: kinds.TOOL_RESULT}
FAILURES = {SpanKind.LLM: kinds.LLM_ERROR, SpanKind.TOOL: kinds.TOOL_ERROR}


def mapped(
    n: int,
    parent: int = 0,
    kind: SpanKind = SpanKind.AGENT,
    *,
    start: float = 0.0,
    end: float = 1.0,
    name: str | None = None,
    trace: str = TRACE,
    fault: tuple[str, str] | None = None,
    requested: list[Json] | None = None,
    scope: str = "lib",
    resource: Resource = PROGRAM,
    **fields: Any,
) -> MappedSpan:
    """A mapped span; times count from ``T0``."""
    failed = fields.setdefault("failed", fault is not None)
    out = MappedSpan(
        i=n,
        resource=resource,
        trace=trace,
        span=hex_id(n),
        parent=hex_id(parent) if parent else None,
        remote=fields.pop("remote", False),
        kind=kind,
        name=name or f"{kind}-{n}",
        scope=scope,
        start_ns=round((T0 + start) * 1e9),
        end_ns=round((T0 + end) * 1e9),
        size=100,
        fault=Fault(*fault) if fault else None,
        **fields,
    )
    if kind is SpanKind.DETAIL:
        return out
    payload: Json = {"requested_tools": requested} if requested else {}
    call = kind in OPENERS
    if fault is not None and call:
        payload |= {"error_type": fault[0], "error": fault[1]}
    elif fault is not None:
        out.error = Event(kinds.ERROR, ts=T0 + end, payload={"error_type": fault[0], "error": fault[1]})
    status = "error" if failed else "ok"
    closer = (FAILURES if failed else CLOSERS).get(kind, kinds.AGENT_END)
    if kind is SpanKind.POINT:
        closer = kinds.LOG
    else:
        out.opener = Event(OPENERS.get(kind, kinds.AGENT_START), ts=T0 + start, payload={})
    if not out.notice:
        out.closer = Event(closer, ts=T0 + end, status=status, payload=payload)
    return out


def mapped_log(
    i: int,
    span_id: int = 0,
    *,
    at: float = 0.5,
    message: str = "hello",
    trace: str | None = TRACE,
    fault: tuple[str, str] | None = None,
    resource: Resource = PROGRAM,
    **fields: Any,
) -> MappedLog:
    """A mapped log record."""
    event = Event(kinds.LOG, ts=T0 + at, payload={"level": "INFO", "message": message})
    return MappedLog(
        i=i,
        resource=resource,
        trace=trace,
        span=hex_id(span_id) if span_id else None,
        time_ns=round((T0 + at) * 1e9),
        event=event,
        size=50,
        fault=Fault(*fault) if fault else None,
        **fields,
    )
