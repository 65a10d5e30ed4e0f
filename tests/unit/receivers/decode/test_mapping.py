from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.model import kinds
from agentrund.model.event import MAX_NAME
from agentrund.model.otlp import (
    BadItem,
    Encoding,
    Fault,
    MappedMetric,
    MappedSpan,
    Metric,
    MetricItem,
    Pulse,
    Resource,
    Scope,
    Signal,
    SpanKind,
)
from agentrund.receivers.decode import mapping_tables as tables
from agentrund.receivers.decode.mapping import map_item, span_kind
from agentrund.receivers.decode.otlp import decode
from support import otlp_build as build
from support.otlp_build import PROGRAM, T0, hex_id, mapped_metric


def mapped(attributes: dict[str, Any] | None = None, **fields: Any) -> MappedSpan:
    scope = fields.pop("scope", "lib")
    change = fields.pop("change", None)
    sent = build.span(attributes=attributes, **fields)
    if change is not None:
        change(sent)
    (item,) = (
        i for i in decode(Signal.TRACES, Encoding.PROTOBUF, build.traces(sent, scope=scope)) if i is not None
    )
    out = map_item(item)
    assert isinstance(out, MappedSpan)
    return out


def op(name: str, **more: Any) -> dict[str, Any]:
    return {"gen_ai.operation.name": name, **more}


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({"openinference.span.kind": "LLM"}, SpanKind.LLM),
        ({"openinference.span.kind": "CHAIN"}, SpanKind.STEP),
        ({"openinference.span.kind": "RETRIEVER"}, SpanKind.POINT),
        ({"openinference.span.kind": "AGENT", "gen_ai.operation.name": "chat"}, SpanKind.AGENT),
        ({"langsmith.span.kind": "llm", "gen_ai.operation.name": "chain"}, SpanKind.LLM),
        ({"langsmith.span.kind": "prompt"}, SpanKind.STEP),
        ({"ai.operationId": "ai.streamText.doStream"}, SpanKind.LLM),
        ({"ai.operationId": "ai.generateObject"}, SpanKind.AGENT),
        ({"ai.operationId": "ai.toolCall"}, SpanKind.TOOL),
        ({"ai.operationId": "ai.embedMany"}, SpanKind.STEP),
        ({"ai.operationId": "ai.embedMany.doEmbed"}, SpanKind.POINT),
        ({"llm.request.type": "chat"}, SpanKind.LLM),
        ({"llm.request.type": "rerank", "gen_ai.operation.name": "chat"}, SpanKind.LLM),
        (op("generate_content"), SpanKind.LLM),
        (op("execute_tool", **{"mcp.method.name": "tools/call"}), SpanKind.TOOL),
        (op("invoke_workflow"), SpanKind.AGENT),
        (op("embeddings"), SpanKind.POINT),
        (op("create_agent"), SpanKind.DETAIL),
        (op("plan"), SpanKind.STEP),
        ({"traceloop.span.kind": "task"}, SpanKind.STEP),
        ({"mcp.method.name": "tools/list"}, SpanKind.DETAIL),
        ({"http.route": "/"}, SpanKind.OTHER),
        ({}, SpanKind.OTHER),
        ({"openinference.span.kind": 5}, SpanKind.STEP),
    ],
)
def test_kinds(attributes, kind):
    assert span_kind(attributes) is kind


def test_a_model_call():
    messages = [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]
    answer = [
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": "yes"},
                {"type": "tool_call", "id": "c", "name": "t", "arguments": {"a": 1}},
            ],
        }
    ]
    span = mapped(
        op(
            "chat",
            **{
                "gen_ai.request.model": "asked",
                "gen_ai.response.model": "served",
                "gen_ai.usage.input_tokens": 120,
                "gen_ai.usage.output_tokens": 18,
                "gen_ai.usage.cache_read.input_tokens": 20,
                "gen_ai.usage.cache_creation.input_tokens": 5,
                "gen_ai.usage.reasoning.output_tokens": 4,
                "gen_ai.usage.cost": 0.25,
                "gen_ai.response.finish_reasons": ["tool_calls"],
                "gen_ai.input.messages": json.dumps(messages),
                "gen_ai.output.messages": json.dumps(answer),
                "gen_ai.agent.name": "planner",
                "server.port": 80,
            },
        ),
        name="chat asked",
        seconds=0.5,
        kind=3,
    )
    assert (span.kind, span.agent, span.name) == (SpanKind.LLM, "planner", "chat asked")
    assert (span.opener.type, span.opener.ts) == (kinds.LLM_PROMPT, T0)
    assert span.opener.payload == {
        "model": "served",
        "tokens_in": 120,
        "messages": 1,
        "text": "[user]\nhi",
        "input": messages,
    }
    assert (span.closer.type, span.closer.ts, span.closer.status, span.closer.dur_ms) == (
        kinds.LLM_RESPONSE,
        T0 + 0.5,
        "ok",
        500,
    )
    assert span.closer.payload == {
        "model": "served",
        "stop_reason": "tool_calls",
        "tokens_in": 120,
        "tokens_out": 18,
        "cached_input_tokens": 20,
        "cache_write_tokens": 5,
        "reasoning_tokens": 4,
        "cost_usd": 0.25,
        "text": "yes",
        "requested_tools": [{"id": "c", "name": "t", "args": {"a": 1}}],
        "output": answer,
        "attributes": {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "asked",
            "gen_ai.agent.name": "planner",
            "server.port": 80,
        },
        "otel": {"scope": "lib", "kind": "client", "name": "chat asked"},
    }


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (["stop"], "stop"),
        (["stop", "length", "stop"], "stop, length"),
        ('["tool_calls"]', "tool_calls"),
        ("end_turn", "end_turn"),
        ([], None),
    ],
)
def test_stop_reasons_are_kept_as_sent(value, reason):
    span = mapped(op("chat", **{"gen_ai.response.finish_reasons": value}))
    assert span.closer.payload.get("stop_reason") == reason


def test_a_failed_model_call():
    span = mapped(op("chat", **{"error.type": "RateLimitError"}), error="429: slow down")
    assert (span.closer.type, span.closer.status) == (kinds.LLM_ERROR, "error")
    assert span.closer.payload["error_type"] == "RateLimitError"
    assert span.closer.payload["error"] == "429: slow down"
    assert (span.fault, span.error) == (Fault("RateLimitError", "429: slow down"), None)


def test_raw_input_and_output_are_the_text_where_there_are_no_messages():
    span = mapped({"openinference.span.kind": "LLM", "input.value": "ask", "output.value": "say"})
    assert (span.opener.payload, span.closer.payload["text"]) == ({"text": "ask"}, "say")


def test_messages_as_span_events_are_part_of_the_call():
    def add(span):
        span.events.add(name="gen_ai.user.message", attributes=build.key_values({"content": "hi"}))
        span.events.add(
            name="gen_ai.choice", attributes=build.key_values({"message": "yes", "finish_reason": "stop"})
        )
        span.events.add(name="other", attributes=build.key_values({"k": 1}), time_unix_nano=1_000_000_000)

    span = mapped(op("chat"), change=add)
    assert span.opener.payload["text"] == "[user]\nhi"
    assert (span.closer.payload["text"], span.closer.payload["stop_reason"]) == ("yes", "stop")
    assert span.closer.payload["otel"]["events"] == [{"name": "other", "ts": 1.0, "attributes": {"k": 1}}]


def test_a_details_event_tells_what_the_span_does_not():
    def add(span):
        told = {"gen_ai.output.messages": [{"parts": [{"type": "text", "content": "yes"}]}], "gen_ai.x": 1}
        span.events.add(name="gen_ai.client.inference.operation.details", attributes=build.key_values(told))

    span = mapped(op("chat"), change=add)
    assert span.closer.payload["text"] == "yes"
    assert span.closer.payload["attributes"]["gen_ai.x"] == 1


def test_a_tool_call():
    span = mapped(
        op(
            "execute_tool",
            **{
                "gen_ai.tool.name": "search",
                "gen_ai.tool.call.id": "c1",
                "gen_ai.tool.call.arguments": '{"q": "x"}',
                "gen_ai.tool.call.result": {"hits": 2},
            },
        ),
        name="execute_tool search",
    )
    assert (span.name, span.call_id) == ("search", "c1")
    assert span.opener.payload == {"args": {"q": "x"}, "call_id": "c1"}
    assert (span.closer.type, span.closer.payload["text"]) == (kinds.TOOL_RESULT, '{"hits":2}')


@pytest.mark.parametrize(
    ("attributes", "span_name", "name"),
    [
        (op("execute_tool"), "execute_tool search", "search"),
        (op("execute_tool"), "whatever", "whatever"),
        ({"openinference.span.kind": "TOOL"}, "handoff to b", "handoff"),
        ({"openinference.span.kind": "TOOL", "tool.name": "divide"}, "divide.run", "divide"),
    ],
)
def test_tool_names(attributes, span_name, name):
    assert mapped(attributes, name=span_name).name == name


def test_a_call_id_that_says_nothing_is_none():
    assert mapped(op("execute_tool", **{"gen_ai.tool.call.id": tables.NO_CALL_ID})).call_id is None


def test_a_failed_tool_call_tells_type_words_and_traceback():
    def add(span):
        span.events[0].attributes.extend(build.key_values({"exception.stacktrace": "Traceback…"}))

    span = mapped(op("execute_tool"), error="x", exception=("TimeoutError", "exceeded 30s"), change=add)
    assert span.closer.type == kinds.TOOL_ERROR
    assert {k: span.closer.payload[k] for k in ("error_type", "error", "text")} == {
        "error_type": "TimeoutError",
        "error": "exceeded 30s",
        "text": "Traceback…",
    }


def test_a_tool_that_says_itself_that_it_failed_has_failed():
    span = mapped(op("execute_tool", **{"gen_ai.tool.status": "error"}))
    assert (span.failed, span.closer.type, span.closer.payload["error_type"]) == (
        True,
        kinds.TOOL_ERROR,
        tables.UNKNOWN_ERROR,
    )


def test_an_exception_of_a_call_that_went_well_is_an_error_of_its_own():
    span = mapped(op("execute_tool"), exception=("E", "handled"))
    assert span.closer.type == kinds.TOOL_RESULT
    assert (span.error.type, span.error.payload) == (kinds.ERROR, {"error_type": "E", "error": "handled"})


def test_of_several_exceptions_the_last_is_the_fault_and_none_is_lost():
    def add(span):
        span.events.add(name="exception", attributes=build.key_values({"exception.type": "Last"}))

    span = mapped(op("chat"), error="x", exception=("First", "one"), change=add)
    assert span.closer.payload["error_type"] == "Last"
    assert [e["attributes"]["exception.type"] for e in span.closer.payload["otel"]["events"]] == ["First"]


def test_an_agents_usage_is_a_sum_that_nobody_adds_again():
    span = mapped(
        op(
            "invoke_agent",
            **{
                "gen_ai.agent.name": "planner",
                "gen_ai.usage.input_tokens": 240,
                "gen_ai.usage.output_tokens": 36,
                "operation.cost": 0.5,
                "input.value": '{"task": "x"}',
                "output.value": "done",
            },
        )
    )
    assert (span.name, span.opener.payload) == ("planner", {"input": {"task": "x"}})
    assert span.closer.type == kinds.AGENT_END
    assert span.closer.payload["rollup"] == {"tokens_in": 240, "tokens_out": 36}
    assert span.closer.payload["cost_usd"] == 0.5
    assert "tokens_in" not in span.closer.payload


def test_a_failed_agent_ends_in_error_and_tells_its_fault_apart():
    span = mapped(op("invoke_agent"), error="boom", exception=("E", "boom"))
    assert (span.closer.type, span.closer.status) == (kinds.AGENT_END, "error")
    assert "error_type" not in span.closer.payload
    assert span.error.payload == {"error_type": "E", "error": "boom"}


def test_steps_bear_their_own_names_whatever_they_belong_to():
    span = mapped({"openinference.span.kind": "CHAIN", "agent.name": "planner"}, name="LangGraph")
    assert span.name == "LangGraph"


def test_an_embedding_is_one_log():
    span = mapped(
        op("embeddings", **{"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 9}), name="embeddings m"
    )
    assert span.opener is None
    assert (span.closer.type, span.closer.name, span.closer.status) == (kinds.LOG, "embeddings", "INFO")
    assert span.closer.payload["message"] == "embeddings m"
    assert (span.closer.payload["model"], span.closer.payload["tokens_in"]) == ("m", 9)
    failed = mapped({"openinference.span.kind": "RETRIEVER"}, error="down")
    assert (failed.closer.name, failed.closer.status, failed.closer.payload["error"]) == (
        "retrieval",
        "ERROR",
        "down",
    )


@pytest.mark.parametrize(
    ("fields", "remote"),
    [
        ({"flags": 0x300}, True),
        ({"flags": 0x100, "kind": 2}, False),
        ({"flags": 0, "kind": 2}, True),
        ({"flags": 0, "kind": 5}, True),
        ({"flags": 0, "kind": 3}, False),
    ],
)
def test_where_a_parent_lies(fields, remote):
    assert mapped(parent=9, **fields).remote is remote
    assert mapped(**fields).remote is False


def test_a_notice_announces_the_span_it_hangs_below():
    span = mapped(
        op("chat", **{"logfire.span_type": "pending_span", "logfire.pending_parent_id": hex_id(7)}),
        n=5,
        parent=4,
    )
    assert (span.notice, span.span, span.parent) == (True, hex_id(4), hex_id(7))
    assert span.opener is not None
    assert span.closer is span.error is None
    root = mapped(
        {"logfire.span_type": "pending_span", "logfire.pending_parent_id": "0" * 16},
        n=5,
        parent=4,
        flags=0x100,
    )
    assert (root.span, root.parent, root.entry) == (hex_id(4), None, True)


def test_a_client_librarys_own_account_is_a_shadow():
    assert mapped(op("chat"), scope="com.anthropic.sdk.python").shadow
    assert not mapped(op("chat")).shadow


def test_what_otlp_says_of_a_span_is_kept():
    def add(span):
        span.links.add(trace_id=b"\x01" * 16, span_id=b"\x02" * 8)
        span.dropped_events_count = 3

    span = mapped(op("chat"), change=add, trace_state="a=b")
    assert span.closer.payload["otel"] == {
        "scope": "lib",
        "name": "work",
        "trace_state": "a=b",
        "links": [{"trace": "01" * 16, "span": "02" * 8, "attributes": {}}],
        "dropped": {"events": 3},
    }


def test_a_metric_without_points_is_a_pulse():
    resource, metric = Resource(), Metric("m", "", "", "sum", "delta", True, {})
    assert map_item(MetricItem(2, resource, Scope(), metric, 0, 0, {}, None, [], 9)) == Pulse(2, resource)


def test_the_heartbeat_of_the_client_is_a_pulse():
    resource, metric = Resource(), Metric("agentrund.alive", "", "", "gauge", None, None, {})
    assert map_item(MetricItem(2, resource, Scope(), metric, 0, 0, {}, {"value": 1}, [], 9)) == Pulse(
        2, resource
    )


def test_a_data_point_names_its_session_itself_or_in_its_resource():
    point = mapped_metric(**{"session.id": "of the point"}).item
    assert map_item(point) == MappedMetric(0, PROGRAM, point, "of the point")
    point = mapped_metric(resource=Resource({"session.id": "of the program"})).item
    assert map_item(point).session == "of the program"


def test_a_metric_that_cannot_be_read_is_no_event():
    item = BadItem(0, Resource({"session.id": "s"}), Signal.METRICS, "why", 9)
    assert map_item(item) == MappedMetric(0, item.resource, item, "s")


KEYS = sorted(
    {rule.attribute for rule in tables.KIND_RULES}
    | {key for keys in tables.COUNTS.values() for key in keys}
    | {*tables.MODEL, *tables.TOOL_ARGS, *tables.TOOL_RESULT, *tables.AGENT_NAME, *tables.RAW_INPUT}
    | {*tables.STOP_REASON, *tables.COST, *tables.SESSION, *tables.ERROR_TEXT, *tables.ERROR_TYPE, "metadata"}
    | {"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"}
    | {"llm.input_messages.0.message.role", "llm.output_messages.0.message.tool_calls.0.tool_call.id"}
    | {"gen_ai.prompt.0.content", "gen_ai.completion.0.tool_calls.0.name", "logfire.span_type"}
)
KIND_VALUES = [v for rule in tables.KIND_RULES for v in rule.values] + ["pending_span", "CHAIN"]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats()
    | st.sampled_from(KIND_VALUES)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.dictionaries(st.sampled_from(KEYS), VALUES | VALUES.map(json.dumps), max_size=8),
    st.booleans(),
    st.booleans(),
)
def test_whatever_the_attributes_say_a_span_is_mapped_to_clean_json(attributes, failed, excepted):
    span = mapped(
        attributes, error="e" if failed else None, exception=("T", "m") if excepted else None, parent=3
    )
    for event in (span.opener, span.closer, span.error):
        if event is not None:
            json.dumps(event.payload, allow_nan=False)
    assert (span.closer is None) == (span.notice or span.kind is SpanKind.DETAIL)


@pytest.mark.parametrize(
    "attributes",
    [{}, op("execute_tool"), op("chat"), op("invoke_agent")],
)
def test_a_name_of_any_length_is_cut_in_the_record_and_kept_in_the_payload(attributes):
    name = "n" * 10_000
    out = mapped(attributes, name=name)
    assert out.name == name[: MAX_NAME - 1] + "…"
    events = [event for event in (out.opener, out.closer) if event is not None]
    assert events
    assert all(event.payload["name"] == name and len(event.name or "") <= MAX_NAME for event in events)
