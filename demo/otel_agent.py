"""A program that knows only OpenTelemetry: GenAI spans over OTLP/gRPC to $OTEL_EXPORTER_OTLP_ENDPOINT."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def main() -> None:
    """One agent, one model call, one tool."""
    provider = TracerProvider(resource=Resource.create({"service.name": "otel-demo"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer("demo")
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "forecaster"}
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "model-y",
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.usage.output_tokens": 18,
        "gen_ai.response.finish_reasons": ["tool_calls"],
    }
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_weather",
        "gen_ai.tool.call.arguments": '{"city": "Oslo"}',
        "gen_ai.tool.call.result": "4 degrees, rain",
    }
    with tracer.start_as_current_span("invoke_agent forecaster", attributes=agent):
        with tracer.start_as_current_span("chat model-y", attributes=chat):
            pass
        with tracer.start_as_current_span("execute_tool get_weather", attributes=tool):
            pass
    provider.shutdown()


if __name__ == "__main__":
    main()
