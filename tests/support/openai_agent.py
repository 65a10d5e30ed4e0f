"""A small agent on OpenAI's library, with its instrumentation: ``openai_agent.py CONVENTION DOOR OTLP MODEL MODE``.

``CONVENTION`` is openinference or genai, ``DOOR`` grpc or http. In mode ``hang`` it waits in its tool.
"""

from __future__ import annotations

import json
import sys
import time

from openai import OpenAI
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

CONVENTION, DOOR, OTLP, MODEL_URL, MODE = sys.argv[1:]
AGENT = {
    "openinference": {"openinference.span.kind": "AGENT"},
    "genai": {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "analyst"},
}
TOOL = {
    "openinference": {"openinference.span.kind": "TOOL", "tool.name": "run_python"},
    "genai": {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "run_python"},
}


def instrument(provider: TracerProvider) -> None:
    """Have every call of the library told."""
    if CONVENTION == "openinference":
        from openinference.instrumentation.openai import OpenAIInstrumentor
    else:
        from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
    OpenAIInstrumentor().instrument(tracer_provider=provider)


def work(provider: TracerProvider) -> None:
    """Ask, do what is asked for, ask again."""
    client = OpenAI(base_url=MODEL_URL, api_key="none", max_retries=0)
    tracer = trace.get_tracer("analyst")
    messages: list = [{"role": "user", "content": "what is the mean?"}]
    with tracer.start_as_current_span("analyst", attributes=AGENT[CONVENTION]):
        asked = client.chat.completions.create(model="scripted-1", messages=messages).choices[0].message
        with tracer.start_as_current_span("run_python", attributes=TOOL[CONVENTION]):
            if MODE == "hang":
                provider.force_flush()
                print("in the tool", flush=True)  # noqa: T201 - what the test waits for
                time.sleep(60)
            result = json.dumps({"mean": 4.2})
        call = asked.tool_calls[0]
        messages += [asked.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": result}]
        client.chat.completions.create(model="scripted-1", messages=messages)


def main() -> None:
    """Set up, work, and leave in order."""
    exporter = OverGrpc(OTLP, insecure=True) if DOOR == "grpc" else OverHttp(f"http://{OTLP}/v1/traces")
    provider = TracerProvider(resource=Resource.create({"service.name": "analyst"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    instrument(provider)
    work(provider)
    provider.shutdown()


if __name__ == "__main__":
    main()
