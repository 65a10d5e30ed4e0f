from __future__ import annotations

import json

import pytest

from agentrund.model import kinds
from agentrund.model.otlp import Encoding, Signal, SpanKind
from agentrund.receivers.decode.mapping import map_item
from agentrund.receivers.decode.otlp import decode
from support import otlp_build as build
from support.client_records import gemini, step, types
from support.otlp_build import T0

COUNTS = {
    "input_token_count": 120,
    "output_token_count": 18,
    "cached_content_token_count": 20,
    "thoughts_token_count": 4,
    "tool_token_count": 0,
    "total_token_count": 142,
}
CLIENTS = {"gemini_cli.": "gemini-cli", "qwen-code.": "qwen-code"}


def chunk(*parts: dict) -> dict:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}}]}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_prompt_begins_a_turn(client):
    turn = step(gemini("user_prompt", {"prompt": "go"}, client=client))
    assert (turn.name, turn.turn, turn.opener.payload["input"]) == (CLIENTS[client], True, "go")


@pytest.mark.parametrize("client", CLIENTS)
def test_request_and_response_are_a_pair(client):
    contents = [{"role": "user", "parts": [{"text": "hi"}]}]
    asked = step(gemini("api_request", {"model": "m", "request_text": json.dumps(contents)}, client=client))
    said = {"model": "m", "duration_ms": 400, "finish_reasons": ["stop"], "response_text": "hello"}
    answered = step(gemini("api_response", COUNTS | said, client=client))
    assert asked.notice
    assert asked.pair == answered.pair == "p"
    assert (asked.opener.payload["text"], asked.opener.payload["messages"]) == ("[user]\nhi", 1)
    assert answered.opener.ts == pytest.approx(T0 + 9.6)
    assert (answered.closer.payload["text"], answered.closer.payload["stop_reason"]) == ("hello", "stop")


def test_thoughts_count_as_tokens_out():
    said = step(gemini("api_response", COUNTS)).closer.payload
    assert (said["tokens_in"], said["tokens_out"], said["reasoning_tokens"]) == (120, 22, 4)
    assert said["cached_input_tokens"] == 20


def test_without_a_total_the_output_counts():
    said = step(gemini("api_response", {"input_token_count": 5, "output_token_count": 7})).closer.payload
    assert said["tokens_out"] == 7


def test_a_streamed_answer_is_one_text_and_the_tools_it_asks_for():
    call = {"functionCall": {"id": "c1", "name": "ls", "args": {"dir": "."}}}
    text = json.dumps([chunk({"text": "I lo"}), chunk({"text": "ok."}), chunk(call)])
    said = step(gemini("api_response", COUNTS | {"response_text": text})).closer.payload
    assert said["text"] == "I look."
    assert said["requested_tools"] == [{"id": "c1", "name": "ls", "args": {"dir": "."}}]


def test_a_failed_call():
    log = gemini("api_error", {"model_name": "m", "error": "bad", "error.type": "ApiError", "duration_ms": 9})
    assert types(log) == [kinds.LLM_PROMPT, kinds.LLM_ERROR]
    said = step(log).closer.payload
    assert (said["error_type"], said["error"], said["model"]) == ("ApiError", "bad", "m")
    assert step(log).pair == "p"


@pytest.mark.parametrize(("success", "kind"), [(True, kinds.TOOL_RESULT), (False, kinds.TOOL_ERROR)])
def test_a_tool_is_told_when_it_is_over(success, kind):
    said = {"function_name": "ls", "function_args": '{"dir": "."}', "success": success, "duration_ms": 100}
    log = gemini("tool_call", said)
    assert types(log) == [kinds.TOOL_CALL, kind]
    assert step(log).opener.payload["args"] == {"dir": "."}
    assert step(log).opener.ts == pytest.approx(T0 + 9.9)


def test_subagents():
    said = {"agent_id": "a", "agent_name": "helper"}
    opened, closed = step(gemini("agent.start", said)), step(gemini("agent.finish", said))
    assert opened.span == closed.span == "agent-a"
    assert (opened.notice, opened.turn, closed.closer.type) == (True, False, kinds.AGENT_END)


def test_subagents_without_an_id_are_a_pair():
    said = {"subagent_name": "helper"}
    opened = step(gemini("subagent_execution", said | {"status": "started"}, client="qwen-code."))
    closed = step(gemini("subagent_execution", said | {"status": "completed"}, client="qwen-code."))
    assert opened.pair == closed.pair is not None
    assert closed.closer.type == kinds.AGENT_END


def test_operation_details_tell_nothing_new_and_stay_logs():
    name = "gen_ai.client.inference.operation.details"
    log = gemini(name, {"gen_ai.request.top_k": 64}, client="", written_in=3)
    assert (log.steps, log.fills, log.at_once) == ([], None, True)
    assert log.event.payload["attributes"]["gen_ai.request.top_k"] == 64


def span(attributes: dict, *, service: str = "gemini-cli"):
    body = build.traces(build.span(attributes=attributes), resource={"service.name": service}, scope=service)
    (item,) = (i for i in decode(Signal.TRACES, Encoding.PROTOBUF, body) if i is not None)
    return map_item(item)


@pytest.mark.parametrize(
    ("operation", "kind"),
    [("llm_call", SpanKind.LLM), ("tool_call", SpanKind.TOOL), ("schedule_tool_calls", SpanKind.DETAIL)],
)
@pytest.mark.parametrize("service", CLIENTS.values())
def test_spans_tell_the_same(operation, kind, service):
    found = span({"gen_ai.operation.name": operation}, service=service)
    assert (found.kind, found.secondary) == (kind, True)


def test_a_tools_span_has_arguments_and_output():
    said = {
        "gen_ai.operation.name": "tool_call",
        "gen_ai.tool.name": "ls",
        "gen_ai.input.messages": json.dumps({"name": "ls", "args": {"dir": "."}}),
        "gen_ai.output.messages": json.dumps({"response": {"resultDisplay": "a b"}}),
    }
    found = span(said)
    assert found.opener.payload["args"] == {"dir": "."}
    assert found.closer.payload["text"] == "a b"
