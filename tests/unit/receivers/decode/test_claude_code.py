from __future__ import annotations

import pytest

from agentrund.model import kinds
from agentrund.model.otlp import Encoding, MappedSpan, Signal, SpanKind
from agentrund.receivers.decode.claude_code import RECORDS, SPANS
from agentrund.receivers.decode.mapping import map_item
from agentrund.receivers.decode.otlp import decode
from support import otlp_build as build
from support.client_records import SESSION, claude, step, types
from support.otlp_build import T0, TRACE, hex_id

CALL = {"model": "m", "input_tokens": 100, "output_tokens": 25, "cost_usd": 0.5, "duration_ms": 700}


def test_a_prompt_begins_the_turn_of_an_agent():
    log = claude("user_prompt", {"prompt.id": "p1", "prompt": "go", "prompt_text": "go", "x": 1})
    turn = step(log)
    assert (turn.kind, turn.name, turn.span, turn.turn, turn.notice) == (
        SpanKind.AGENT,
        "claude-code",
        "prompt-p1",
        True,
        True,
    )
    assert turn.opener.payload["input"] == "go"
    kept = turn.opener.payload["attributes"]
    assert kept["x"] == 1
    assert "prompt_text" not in kept
    assert log.at_once
    assert log.session == SESSION


def test_a_request_is_a_whole_call_that_began_its_duration_before():
    log = claude("api_request", CALL | {"prompt.id": "p1", "query_source": "sdk"})
    call = step(log)
    assert types(log) == [kinds.LLM_PROMPT, kinds.LLM_RESPONSE]
    assert call.opener.ts == pytest.approx(T0 + 9.3)
    assert (call.closer.ts, call.closer.dur_ms, call.parent) == (T0 + 10, 700, "prompt-p1")
    assert call.closer.payload["cost_usd"] == 0.5
    assert call.closer.payload["attributes"]["query_source"] == "sdk"
    assert not call.notice


def test_cached_tokens_count_in():
    more = {"cache_read_tokens": 50, "cache_creation_tokens": "30"}
    said = step(claude("api_request", CALL | more)).closer.payload
    counts = ("tokens_in", "tokens_out", "cached_input_tokens", "cache_write_tokens")
    assert [said[key] for key in counts] == [180, 25, 50, 30]


def test_a_failed_request_is_a_call_too():
    log = claude("api_error", {"model": "m", "error": "overloaded", "status_code": 529, "duration_ms": "20"})
    call = step(log)
    assert types(log) == [kinds.LLM_PROMPT, kinds.LLM_ERROR]
    assert call.failed
    said = call.closer.payload
    assert (said["error_type"], said["error"], said["model"]) == ("529", "overloaded", "m")


def test_exhausted_retries_are_the_same_fault_and_no_second_error():
    log = claude("api_retries_exhausted", {"error": "overloaded"})
    assert not log.steps
    assert (log.event.type, log.event.status) == (kinds.LOG, "ERROR")
    assert "error_type" not in log.event.payload


@pytest.mark.parametrize("name", ["internal_error", "api_refusal"])
def test_other_faults_are_errors(name):
    log = claude(name, {"error": "no"})
    assert (log.event.type, log.event.payload["error_type"]) == (kinds.ERROR, name)


def test_a_decision_opens_the_call_its_result_closes():
    said = {"tool_name": "Bash", "tool_use_id": "t1"}
    opened = step(claude("tool_decision", said | {"decision": "accept", "tool_parameters": '{"a": 1}'}))
    closed = step(claude("tool_result", said | {"success": "true", "tool_input": '{"b": 2}'}))
    assert (opened.span, opened.call_id, opened.notice) == ("t1", "t1", True)
    assert opened.opener.payload["args"] == {"a": 1}
    assert (closed.span, closed.closer.type) == ("t1", kinds.TOOL_RESULT)
    assert closed.opener.payload["args"] == {"b": 2}


def test_a_failed_tool():
    said = {"tool_name": "Bash", "tool_use_id": "t1", "success": "false", "error": "exit 1"}
    closed = step(claude("tool_result", said | {"error_type": "ShellError"}))
    assert closed.closer.type == kinds.TOOL_ERROR
    assert (closed.closer.payload["error_type"], closed.closer.payload["error"]) == ("ShellError", "exit 1")


def test_a_rejected_tool_is_not_open():
    said = {"tool_name": "Bash", "tool_use_id": "t1", "decision": "reject", "source": "user_reject"}
    log = claude("tool_decision", said)
    assert types(log) == [kinds.TOOL_CALL, kinds.TOOL_ERROR]
    assert step(log).closer.payload["error_type"] == "rejected"


def test_without_an_id_decision_and_result_are_a_pair():
    opened = step(claude("tool_decision", {"tool_name": "Bash", "decision": "accept"}))
    closed = step(claude("tool_result", {"tool_name": "Bash", "success": "true"}))
    assert opened.pair == closed.pair is not None
    assert opened.span != closed.span


def test_a_subagent_begins_with_its_first_call():
    said = {"agent_id": "a2", "parent_agent_id": "a1", "agent.name": "helper", "prompt.id": "p1"}
    agent, call = claude("api_request", CALL | said).steps
    assert (agent.kind, agent.span, agent.parent, agent.name) == (
        SpanKind.AGENT,
        "agent-a2",
        "agent-a1",
        "helper",
    )
    assert agent.notice
    assert not agent.turn
    assert (call.parent, call.agent, call.worker) == ("agent-a2", "helper", "a2")


def test_a_subagent_without_a_parent_is_of_the_turn():
    agent, _ = claude("api_request", CALL | {"agent_id": "a", "agent.name": "n", "prompt.id": "p"}).steps
    assert agent.parent == "prompt-p"


def test_a_subagents_end():
    said = {"agent_id": "a", "agent_type": "helper", "total_tokens": 7, "duration_ms": 3000}
    end = step(claude("subagent_completed", said))
    assert (end.span, end.closer.type, end.opener.ts) == ("agent-a", kinds.AGENT_END, T0 + 7)
    assert end.closer.payload["attributes"]["total_tokens"] == 7


def test_an_answer_adds_to_the_call_before_it():
    log = claude("assistant_response", {"response": "hi", "agent_id": "a"})
    assert (log.adds, log.worker, log.steps) == ({"text": "hi"}, "a", [])


def test_all_else_is_a_log_below_its_agent():
    log = claude("compaction", {"prompt.id": "p", "trigger": "auto", "event.sequence": 3}, written_in=7)
    assert (log.event.type, log.span, log.trace, log.joins) == (kinds.LOG, "prompt-p", None, TRACE)
    assert log.event.payload["attributes"]["trigger"] == "auto"
    assert log.event.payload["otel"] == {"scope": RECORDS, "trace": TRACE, "span": hex_id(7)}
    assert (log.event.name, log.count) == ("claude-code", 3)


def test_a_record_sent_twice_has_one_id():
    one, again, later = (step(claude("api_request", CALL, at=at)) for at in (1.0, 1.0, 1.5))
    assert one.span == again.span != later.span


def span(kind: str, attributes: dict | None = None, **fields) -> MappedSpan:
    said = {"span.type": kind, "session.id": SESSION, **(attributes or {})}
    body = build.traces(build.span(attributes=said, **fields), scope=SPANS)
    (item,) = (i for i in decode(Signal.TRACES, Encoding.PROTOBUF, body) if i is not None)
    out = map_item(item)
    assert isinstance(out, MappedSpan)
    return out


@pytest.mark.parametrize(
    ("kind", "is_"),
    [
        ("interaction", SpanKind.AGENT),
        ("llm_request", SpanKind.LLM),
        ("tool", SpanKind.TOOL),
        ("tool.execution", SpanKind.DETAIL),
        ("hook", SpanKind.DETAIL),
    ],
)
def test_spans_tell_the_same(kind, is_):
    found = span(kind, {"gen_ai.operation.name": "chat"})
    assert (found.kind, found.secondary) == (is_, True)


def test_a_tools_span_has_its_output():
    out = build.span(attributes={"span.type": "tool", "tool_name": "Bash"})
    out.events.add(name="tool.output", attributes=build.key_values({"output": "done"}))
    (item,) = (
        i for i in decode(Signal.TRACES, Encoding.PROTOBUF, build.traces(out, scope=SPANS)) if i is not None
    )
    assert map_item(item).closer.payload["text"] == "done"


def test_an_interaction_is_the_agent():
    found = span("interaction", {"user_prompt": "go"})
    assert (found.name, found.opener.payload["input"]) == ("claude-code", "go")
