"""Sends OTLP requests over gRPC as fast as they are taken: ``python -m bench.otlp_load ADDRESS SPANS``."""

from __future__ import annotations

import os
import sys

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
UNDER_WAY = 4
"""Requests at a time, as several exporters would have."""
_PLACE = b"a trace of 16 by"
_TEXT = "x" * 900


def body(spans: int) -> bytes:
    """A session's request: model calls of about 1 KB each below one agent that does not end."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "load"
    scope = resource.scope_spans.add()
    for n in range(1, spans + 1):
        span = scope.spans.add(name="chat", trace_id=_PLACE, span_id=n.to_bytes(8, "big"))
        span.parent_span_id = b"\1" * 8
        span.start_time_unix_nano, span.end_time_unix_nano = 10**18 + n, 10**18 + n + 1
        span.attributes.add(key="gen_ai.operation.name").value.string_value = "chat"
        span.attributes.add(key="gen_ai.conversation.id").value.string_value = f"load-{os.getpid()}"
        span.attributes.add(key="gen_ai.output.messages").value.string_value = _TEXT
    return request.SerializeToString()


def main() -> None:
    """Until it is killed."""
    os.nice(10)  # it takes what is left: on two cores the sender that is measured would wait for it
    address, spans = sys.argv[1], int(sys.argv[2])
    whole = body(spans)
    with grpc.insecure_channel(address) as channel:
        export = channel.unary_unary(EXPORT)
        while True:
            calls = [export.future(whole.replace(_PLACE, os.urandom(16))) for _ in range(UNDER_WAY)]
            for call in calls:
                call.exception()


if __name__ == "__main__":
    main()
