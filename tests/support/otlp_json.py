"""Requests from protobuf to OTLP/JSON and back, by the stock converter and OTLP's own rule for ids."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agentrund.model.otlp import Signal

KINDS: dict[Signal, type[Message]] = {
    Signal.TRACES: ExportTraceServiceRequest,
    Signal.LOGS: ExportLogsServiceRequest,
    Signal.METRICS: ExportMetricsServiceRequest,
}
_IDS = {"traceId", "spanId", "parentSpanId"}


def to_json(signal: Signal, body: bytes) -> bytes:
    """A protobuf body as JSON."""
    message = KINDS[signal].FromString(body)
    found = json_format.MessageToDict(message, use_integers_for_enums=True)
    return json.dumps(_with_ids(found, lambda text: base64.b64decode(text).hex())).encode()


def to_protobuf(signal: Signal, body: bytes) -> bytes:
    """A JSON body as protobuf."""
    found = _with_ids(json.loads(body), lambda text: base64.b64encode(bytes.fromhex(text)).decode())
    message = json_format.ParseDict(found, KINDS[signal](), ignore_unknown_fields=True)
    return message.SerializeToString()


def _with_ids(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, list):
        return [_with_ids(item, change) for item in value]
    if isinstance(value, dict):
        return {
            key: change(inner) if key in _IDS and isinstance(inner, str) else _with_ids(inner, change)
            for key, inner in value.items()
        }
    return value
