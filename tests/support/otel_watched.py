"""A program with the SDK and start notices: ``otel_watched.py HTTP_ADDRESS MODE``; modes ok, hang, fork."""

from __future__ import annotations

import os
import sys
import time

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import agentrund_client.otel

PLANNER = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "run_python"}


def main() -> None:
    address, mode = sys.argv[1:]
    provider = TracerProvider(resource=Resource.create({"service.name": "watched"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"http://{address}/v1/traces")))
    trace.set_tracer_provider(provider)
    agentrund_client.otel.watch(endpoint=f"http://{address}")
    tracer = trace.get_tracer("test")
    if mode == "fork" and (pid := os.fork()):
        os.waitpid(pid, 0)
        return
    with (
        tracer.start_as_current_span("invoke_agent planner", attributes=PLANNER),
        tracer.start_as_current_span("execute_tool run_python", attributes=TOOL),
    ):
        with tracer.start_as_current_span("GET /", attributes={"http.route": "/"}):
            pass
        if mode != "ok":
            print("in the tool", flush=True)  # noqa: T201 - what the test waits for
            time.sleep(600 if mode == "hang" else 0)
    provider.shutdown()


if __name__ == "__main__":
    main()
