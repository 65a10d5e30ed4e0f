"""Small OTLP requests and mapped items for tests."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as MetricMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from agentrund.model import kinds
from agentrund.model.event import Event, Json
from agentrund.model.otlp import (
    Fault,
    MappedLog,
    MappedMetric,
    MappedSpan,
    Metric,
    MetricItem,
    Resource,
    Scope,
    SpanKind,
)
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


def metrics(*found: MetricMessage, resource: Json | None = None, scope: str = "lib") -> bytes:
    request = ExportMetricsServiceRequest()
    of_resource = request.resource_metrics.add()
    of_resource.resource.attributes.extend(key_values(resource or {}))
    of_scope = of_resource.scope_metrics.add()
    of_scope.scope.name = scope
    of_scope.metrics.extend(found)
    return request.SerializeToString()


def counter(name: str = "calls", *values: int, at: float = T0, **attributes: Any) -> MetricMessage:
    """A delta sum with a point for each value."""
    out = MetricMessage(name=name, unit="1")
    out.sum.aggregation_temporality, out.sum.is_monotonic = 1, True
    for value in values or (1,):
        out.sum.data_points.add(
            as_int=value, time_unix_nano=round(at * 1e9), attributes=key_values(attributes)
        )
    return out


def every_kind() -> list[MetricMessage]:
    """One metric of each kind, with everything a point can have."""
    times = {"start_time_unix_nano": round(T0 * 1e9), "time_unix_nano": round((T0 + 1) * 1e9)}
    common = {**times, "attributes": key_values({"model": "m", "n": 1})}
    gauge = MetricMessage(name="g", description="a gauge", metadata=key_values({"prometheus.type": "x"}))
    gauge.gauge.data_points.add(as_double=1.5, **common)
    gauge.gauge.data_points.add(as_double=float("nan"), **common)
    gauge.gauge.data_points.add(flags=1, **times)
    histogram = MetricMessage(name="h", unit="s")
    histogram.histogram.aggregation_temporality = 2
    point = histogram.histogram.data_points.add(
        count=3, sum=4.5, min=0.5, max=3.0, explicit_bounds=[1.0, 2.0], bucket_counts=[1, 1, 1], **common
    )
    point.exemplars.add(
        as_int=3,
        time_unix_nano=round(T0 * 1e9),
        trace_id=b"\x11" * 16,
        span_id=b"\x01" * 8,
        filtered_attributes=key_values({"a": "b"}),
    )
    histogram.histogram.data_points.add(count=0, **times)
    exponential = MetricMessage(name="e")
    exponential.exponential_histogram.aggregation_temporality = 1
    point = exponential.exponential_histogram.data_points.add(
        count=6, sum=-2.0, scale=-3, zero_count=1, zero_threshold=0.25, min=-9.0, max=7.0, **common
    )
    point.positive.offset, point.negative.offset = -2, 3
    point.positive.bucket_counts.extend([1, 0, 2])
    point.negative.bucket_counts.extend([2])
    summary = MetricMessage(name="s")
    point = summary.summary.data_points.add(count=2, sum=3.0, **common)
    point.quantile_values.add(quantile=0.5, value=1.0)
    point.quantile_values.add(quantile=1.0, value=2.0)
    return [counter("c", 2**53 + 1, -1, model="m"), gauge, histogram, exponential, summary]


def mapped_metric(
    i: int = 0, *, name: str = "calls", value: int = 1, session: str | None = None, **fields: Any
) -> MappedMetric:
    """A mapped point of a counter, of a program unless ``resource`` says otherwise."""
    resource = fields.pop("resource", PROGRAM)
    metric = Metric(name, "", "", "sum", "delta", True, {})
    item = MetricItem(i, resource, Scope(), metric, 0, round(T0 * 1e9), fields, {"value": value}, [], 100)
    return MappedMetric(i, resource, item, session)


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
