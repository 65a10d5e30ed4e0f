"""A program with the OpenTelemetry SDK: ``otel_program.py ENDPOINT MODE [http]``; ``https://`` is TLS.

Modes: ``ok`` ends well; ``hang`` flushes one model call that asks for a tool, then waits to be killed
inside an agent span that never comes.
"""

from __future__ import annotations

import os
import sys
import time

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

ANSWER = (
    '[{"role":"assistant","parts":[{"type":"tool_call","id":"call_1","name":"run_python","arguments":{}}]}]'
)


def main() -> None:
    endpoint, mode = sys.argv[1:3]
    resource = Resource.create({"service.name": "tested", "process.pid": os.getpid()})
    provider = TracerProvider(resource=resource)
    if "http" in sys.argv[3:]:
        exporter = OverHttp(endpoint=f"http://{endpoint}/v1/traces")
    else:
        exporter = OTLPSpanExporter(endpoint=endpoint, insecure=None if "://" in endpoint else True)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.output.messages": ANSWER,
    }
    with tracer.start_as_current_span(
        "invoke_agent planner",
        attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"},
    ):
        with tracer.start_as_current_span("chat m", attributes=chat):
            pass
        if mode == "hang":
            provider.force_flush()
            print("flushed", flush=True)  # noqa: T201 - what the test waits for
            time.sleep(600)
        with tracer.start_as_current_span(
            "execute_tool run_python",
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "run_python",
                "gen_ai.tool.call.id": "call_1",
            },
        ):
            pass
    provider.shutdown()


if __name__ == "__main__":
    main()
