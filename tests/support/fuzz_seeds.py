"""Input that is right, of every kind: what ``mutate`` starts from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from agentrund.model import kinds
from agentrund.model.otlp import Signal
from support.otlp_build import any_value, every_kind, key_values, logs, metrics, span, traces

VECTORS = Path(__file__).parents[2] / "proto" / "vectors" / "stream"
MESSAGES = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Plan."}]}])
CALLS = json.dumps(
    [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": "x"}}],
        }
    ]
)


def frames() -> list[dict[str, Any]]:
    """Frames of a client: the protocol's examples, and an event of every type."""
    found = []
    for path in sorted(VECTORS.glob("*.json")):
        vectors = json.loads(path.read_text())
        if vectors["direction"] == "client":
            found += [case["frame"] for case in vectors["cases"] if "frame" in case and "error" not in case]
    types = sorted(value for name, value in vars(kinds).items() if name.isupper() and isinstance(value, str))
    payload = {
        "text": "a\nb",
        "cost_usd": 0.1,
        "tokens_in": 3,
        "args": {"code": "1/0"},
        "error_type": "E",
        "error": "e",
    }
    for n, kind in enumerate(types, 1):
        found.append({"n": n, "type": kind, "name": "f", "span": str(n), "status": "ok", "payload": payload})
    return found


def requests() -> list[tuple[Signal, Message]]:
    """Requests of every signal, with the attributes of both families of conventions."""
    chat = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 3, "gen_ai.input.messages": MESSAGES, "gen_ai.output.messages": CALLS,
        "gen_ai.response.finish_reasons": ["tool_call"], "gen_ai.conversation.id": "c", "gen_ai.usage.cost": 0.1,
    }  # fmt: skip
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.id": "c1",
            "gen_ai.tool.call.arguments": '{"q": "x"}', "gen_ai.tool.call.result": "[1]"}  # fmt: skip
    inference = {
        "openinference.span.kind": "LLM", "llm.model_name": "m", "llm.token_count.prompt": 4, "session.id": "s",
        "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "hi",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "f", "input.value": "{}",
        "llm.invocation_parameters": '{"temperature": 0}',
    }  # fmt: skip
    spans = (
        span(
            1,
            name="invoke_agent a",
            attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"},
        ),
        span(2, 1, name="chat m", attributes=chat),
        span(3, 1, name="search", attributes=tool, error="boom", exception=("ValueError", "boom")),
        span(4, 1, name="llm", attributes=inference),
        span(5, 1, attributes={"deep": [{"a": [1, 2.5, True, b"x", None, {"k": "v"}]}]}),
    )
    record = LogRecord(
        time_unix_nano=1_790_000_000_000_000_000, severity_number=9, severity_text="INFO",
        body=any_value({"message": "hi", "list": [1, {"a": None}]}), event_name="gen_ai.user.message",
        attributes=key_values({"gen_ai.system": "x", "session.id": "s"}), trace_id=b"\x11" * 16, span_id=b"\x01" * 8,
    )  # fmt: skip
    resource = {"service.name": "demo", "process.pid": 4242}
    return [
        (Signal.TRACES, ExportTraceServiceRequest.FromString(traces(*spans, resource=resource))),
        *(
            (Signal.TRACES, ExportTraceServiceRequest.FromString(traces(one, resource=resource)))
            for one in spans
        ),
        (Signal.LOGS, ExportLogsServiceRequest.FromString(logs(record, resource=resource))),
        (
            Signal.METRICS,
            ExportMetricsServiceRequest.FromString(metrics(*every_kind(), resource=resource)),
        ),
    ]
