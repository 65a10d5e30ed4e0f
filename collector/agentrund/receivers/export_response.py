"""What a sender is told of a request that was taken: nothing, or how many of its items could not be read.

A sender must not send again after either (OTLP specification, "Partial Success").
"""

from __future__ import annotations

from typing import Final

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from agentrund.model.otlp import Encoding, Signal
from agentrund.receivers.sink import Receipt

_REJECTED: Final = {
    Signal.TRACES: "rejectedSpans",
    Signal.LOGS: "rejectedLogRecords",
    Signal.METRICS: "rejectedDataPoints",
}


def encode(signal: Signal, encoding: Encoding, receipt: Receipt) -> bytes:
    """An Export response; ``partial_success`` is unset where everything could be read."""
    count = receipt.rejected
    if encoding is Encoding.JSON:
        # A 64-bit integer is a string in protobuf's JSON.
        said = (
            {"partialSuccess": {_REJECTED[signal]: str(count), "errorMessage": receipt.why}} if count else {}
        )
        return msgspec.json.encode(said)
    if not count:
        return b""
    # The three signals' responses have the same fields by number.
    partial = ExportTracePartialSuccess(rejected_spans=count, error_message=receipt.why)
    return ExportTraceServiceResponse(partial_success=partial).SerializeToString()
