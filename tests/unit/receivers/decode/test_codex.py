from __future__ import annotations

import pytest

from agentrund.model import kinds
from agentrund.model.otlp import Encoding, Signal, SpanKind
from agentrund.receivers.decode.mapping import map_item
from agentrund.receivers.decode.otlp import decode
from support import otlp_build as build
from support.client_records import codex, step, types
from support.otlp_build import T0

DONE = {
    "event.kind": "response.completed",
    "input_token_count": "120",
    "output_token_count": "18",
    "cached_token_count": 20,
    "reasoning_token_count": 4,
    "tool_token_count": "138",
}


def test_a_prompt_begins_a_turn():
    turn = step(codex("user_prompt", {"prompt": "go"}))
    assert (turn.name, turn.turn, turn.opener.payload["input"]) == ("codex", True, "go")


def test_a_request_and_its_completed_stream_are_a_pair():
    asked = step(codex("api_request", {"http.response.status_code": 200, "duration_ms": "50"}))
    answered = step(codex("sse_event", DONE))
    assert asked.notice
    assert asked.pair == answered.pair is not None
    assert asked.opener.ts == pytest.approx(T0 + 9.95)
    said = answered.closer.payload
    counts = ("tokens_in", "tokens_out", "cached_input_tokens", "reasoning_tokens")
    assert [said[key] for key in counts] == [120, 18, 20, 4]
    assert (said["model"], said["attributes"]["tool_token_count"]) == ("m", "138")
    assert answered.start_ns == answered.end_ns


def test_pieces_of_a_stream_are_no_events():
    twin = {"event.kind": "response.completed", "duration_ms": "0"}
    assert codex("sse_event", twin).noise
    assert codex("sse_event", {"event.kind": "response.created"}).noise
    assert codex("websocket_event", {"event.kind": "response.created"}).noise
    assert not codex("sse_event", DONE).noise


def test_a_stream_that_breaks_is_a_failed_call():
    log = codex("sse_event", {"event.kind": "response.failed", "error.message": "cut"})
    assert types(log) == [kinds.LLM_PROMPT, kinds.LLM_ERROR]
    assert step(log).pair is not None


@pytest.mark.parametrize(
    "fault",
    [{"http.response.status_code": 500}, {"error.message": "no route"}, {"http.response.status_code": 400}],
)
def test_a_refused_request_is_a_failed_call(fault):
    log = codex("api_request", fault | {"duration_ms": "100"})
    assert types(log) == [kinds.LLM_PROMPT, kinds.LLM_ERROR]
    assert step(log).pair is None
    assert step(log).closer.payload["error_type"] in ("500", "_OTHER", "400")


def test_a_request_that_is_no_model_call_stays_a_log():
    assert not codex("api_request", {"endpoint": "/models", "http.response.status_code": 200}).steps


def test_a_tool():
    said = {"tool_name": "exec", "call_id": "c1"}
    opened = step(codex("tool_decision", said | {"decision": "approved"}))
    result = {"success": "true", "arguments": '{"cmd": "ls"}', "output": "Process exited with code 0\n"}
    closed = step(codex("tool_result", said | result))
    assert (opened.span, opened.notice) == ("c1", True)
    assert (closed.span, closed.closer.type) == ("c1", kinds.TOOL_RESULT)
    assert closed.opener.payload == {"call_id": "c1", "args": {"cmd": "ls"}}
    assert closed.closer.payload["text"] == "Process exited with code 0\n"


def test_a_command_that_failed_is_an_error_although_codex_calls_it_a_success():
    output = "Chunk ID: 1\nProcess exited with code 3\nOutput:\nno"
    closed = step(
        codex("tool_result", {"tool_name": "exec", "call_id": "c", "success": "true", "output": output})
    )
    assert closed.closer.type == kinds.TOOL_ERROR
    assert (closed.closer.payload["error_type"], closed.closer.payload["error"]) == (
        "exit_code",
        "exit code 3",
    )


def test_an_exit_code_within_a_commands_output_says_nothing():
    output = "Process exited with code 0\nOutput:\n" + "x" * 5000 + "\nProcess exited with code 3\n"
    closed = step(
        codex("tool_result", {"tool_name": "exec", "call_id": "c", "success": "true", "output": output})
    )
    assert closed.closer.type == kinds.TOOL_RESULT


def test_a_denied_tool_is_not_open():
    said = {"tool_name": "exec", "call_id": "c", "decision": "denied", "source": "User"}
    assert types(codex("tool_decision", said)) == [kinds.TOOL_CALL, kinds.TOOL_ERROR]


def test_the_rest_is_logs():
    log = codex("conversation_starts", {"provider_name": "p"})
    assert (log.steps, log.noise, log.at_once) == ([], False, True)
    assert log.event.payload["attributes"]["provider_name"] == "p"


def test_its_spans_are_details():
    said = {"gen_ai.operation.name": "chat"}
    body = build.traces(build.span(attributes=said), resource={"service.name": "codex_exec"})
    (item,) = (i for i in decode(Signal.TRACES, Encoding.PROTOBUF, body) if i is not None)
    assert map_item(item).kind is SpanKind.DETAIL
