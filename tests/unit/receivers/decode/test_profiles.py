"""Whatever a client says, its records are read, and what is not understood is kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from agentrund.model import kinds
from agentrund.model.event import MAX_NAME
from agentrund.model.otlp import Encoding, MappedLog, Signal
from agentrund.receivers.decode import claude_code, codex, gemini
from agentrund.receivers.decode.mapping import map_item
from agentrund.receivers.decode.otlp import decode
from support import otlp_build as build
from support.client_records import claude
from support.client_records import codex as codex_record
from support.client_records import gemini as gemini_record

KEYS = [
    "prompt.id",
    "agent_id",
    "parent_agent_id",
    "agent.name",
    "agent_type",
    "tool_name",
    "tool_use_id",
    "call_id",
    "tool_input",
    "decision",
    "success",
    "duration_ms",
    "input_tokens",
    "input_token_count",
    "total_token_count",
    "cost_usd",
    "event.sequence",
    "event.kind",
    "endpoint",
    "http.response.status_code",
    "error",
    "error.message",
    "status",
    "model",
    "prompt",
    "response",
    "response_text",
    "request_text",
    "finish_reasons",
    "function_args",
    "output",
    "unheard.of",
]
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["9" * 5000, "nan", "-1", "1e400", "[", '[{"candidates": 3}]', '[{"parts": 1}]', "{}", "x" * 5000]
    ),
    st.lists(st.text(max_size=3), max_size=3),
    st.just({"k": [{"k": 1}]}),
)
CLIENTS = {
    "claude": (claude, [*sorted(claude_code._HANDLERS), "assistant_response", "internal_error", "other"]),
    "codex": (codex_record, [*sorted(codex._HANDLERS), "sse_event", "other"]),
    "gemini": (gemini_record, [*sorted(gemini._HANDLERS), "other"]),
}


def said(log: MappedLog) -> list[Any]:
    """Every payload of a record's events."""
    events = [e for s in log.steps for e in (s.opener, s.closer) if e is not None] or [log.event]
    return [e.payload for e in events]


@pytest.mark.parametrize("client", CLIENTS)
@given(data=st.data())
def test_any_record_is_read(client, data):
    make, names = CLIENTS[client]
    name = data.draw(st.sampled_from(names))
    attributes = data.draw(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8))
    log = make(name, attributes)
    assert log.at_once
    for step in log.steps:
        assert step.start_ns <= step.end_ns
        assert 0 < len(step.span) <= MAX_NAME
        assert all(len(text) <= MAX_NAME for text in (step.name, step.parent or "", step.pair or ""))
        assert step.notice == (step.closer is None)
        if step.closer is not None:
            assert kinds.CLOSES[step.closer.type] == step.opener.type
            assert step.failed == ("error_type" in step.closer.payload)
    if "unheard.of" in attributes and not log.noise:
        assert any("unheard.of" in payload.get("attributes", {}) for payload in said(log))


@pytest.mark.parametrize("name", [["codex"], 3, None, {"k": "gemini-cli"}])
def test_a_service_may_be_called_anything(name):
    attributes = build.key_values({"gen_ai.operation.name": "chat"})
    for signal, body in (
        (Signal.LOGS, build.logs(LogRecord(attributes=attributes), resource={"service.name": name})),
        (Signal.TRACES, build.traces(build.span(), resource={"service.name": name})),
    ):
        (item,) = (i for i in decode(signal, Encoding.PROTOBUF, body) if i is not None)
        out = map_item(item)
        assert not (out.at_once if isinstance(out, MappedLog) else out.secondary)
