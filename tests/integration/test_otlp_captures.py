"""Recorded requests of real programs give the truth their manifests state, however they arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrund.model import kinds
from agentrund.model.otlp import Signal
from support.otlp_captures import Capture, Request, load
from support.otlp_execute import Executor, truth
from support.otlp_replay import KILLED, doubled, recoded, replay, reversed_requests, split

CAPTURES = [
    "claude-code-2.1.332-default-http",
    "claude-code-2.1.332-full-grpc",
    "claude-code-2.1.332-http-retry",
    "claude-code-2.1.332-llm500",
    "claude-code-2.1.332-sigkill",
    "claude-code-2.1.332-subagents",
    "codex-0.171.0-full-grpc",
    "codex-0.171.0-llm500",
    "gemini-cli-0.61.0-full-grpc",
    "gemini-cli-0.61.0-llm400",
    "google-adk-2.13.0",
    "google-adk-2.13.0-llm500",
    "logfire-5.4.0",
    "logfire-5.4.0-pending",
    "multi-process-3procs",
    "openinference-anthropic-3.1.0",
    "openinference-crewai-1.1.21-toolfail",
    "openinference-langchain-0.1.80",
    "openinference-langchain-0.1.80-toolfail",
    "openinference-openai-0.1.66",
    "openinference-openai-agents-2.6.0-handoff",
    "openinference-openai-agents-2.6.0-toolfail",
    "openinference-smolagents-0.1.43",
    "openllmetry-langchain-0.62.4",
    "openllmetry-openai-0.40.14",
    "otel-genai-anthropic-1.3b0",
    "otel-genai-langchain-1.3b0-toolfail",
    "otel-genai-openai-agents-1.3b0-handoff",
    "otel-openai-v2-2.4b0-default",
    "otel-sdk-node-0.223.0-grpc",
    "otel-sdk-node-0.223.0-sigkill",
    "otel-sdk-python-1.45.2-grpc",
    "otel-sdk-python-1.45.2-grpc-retry",
    "otel-sdk-python-1.45.2-http",
    "otel-sdk-python-1.45.2-http-gzip",
    "pydantic-ai-2.68.0-testmodel",
    "pydantic-ai-2.68.0-toolfail",
    "pydantic-ai-2.68.0-two-agents",
    "pydantic-ai-mcp-2.3.0",
    "strands-agents-1.62.0",
    "strands-agents-1.62.0-sigkill",
    "strands-agents-1.62.0-toolfail",
    "vercel-ai-6.0.326-json",
    "vercel-ai-6.0.326-json-toolfail",
]
LOGGED = [name for name in CAPTURES if name.startswith(("claude-code", "codex", "gemini", "multi-process"))]
"""Of clients whose log records are the account of a run."""

Arrangement = Callable[[list[Request]], list[Request]]
ARRANGEMENTS: dict[str, Arrangement] = {
    "as recorded": list,
    "reversed": reversed_requests,
    "doubled": doubled,
    "split": split,
    "in the other encoding": recoded,
    "split and reversed": lambda requests: reversed_requests(split(requests)),
}


def run(capture: Capture, arrange: Arrangement) -> Executor:
    return replay(
        arrange(capture.requests),
        cause=cause_of(capture),
        processes=capture.processes,
    )


def comparable(capture: Capture, found: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the manifest says and the replay can show; where calls are parallel their order is no truth."""
    expected = {key: value for key, value in capture.expect.items() if key in found}
    shown = {key: found[key] for key in expected}
    for side in (expected, shown):
        for key in ("agents", "tool_calls", "models"):
            side[key] = sorted(side[key], key=str)
    return expected, shown


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize("name", CAPTURES)
def test_a_capture_gives_its_truth(name, arrangement):
    capture = load(name)
    executor = run(capture, ARRANGEMENTS[arrangement])
    expected, shown = comparable(capture, truth(executor.all_runs()))
    assert expected == shown


@pytest.mark.parametrize("name", CAPTURES)
def test_every_request_is_done_and_every_call_has_its_place(name):
    capture = load(name)
    executor = run(capture, list)
    assert len(executor.done) == len({(r.signal, r.body) for r in capture.requests})
    for one in executor.all_runs():
        assert [r.seq for r in one.records] == list(range(1, len(one.records) + 1))
        assert not any(r.late for r in one.records)
        openers = {r.seq: r for r in one.records}
        for record in one.of(*kinds.CLOSES):
            opener = openers[record.parent_seq]
            assert kinds.CLOSES[record.type] == opener.type
            assert opener.name == record.name
            assert opener.ts <= record.ts
        if one.status != "crashed":
            inner = [r for r in one.of(kinds.LLM_PROMPT, kinds.TOOL_CALL) if r.src.get("parent")]
            assert all(r.parent_seq is not None for r in inner)


def test_captures_that_were_killed_list_what_was_open():
    executor = run(load("strands-agents-1.62.0-sigkill"), list)
    (one,) = executor.all_runs()
    assert one.records[-1].type == kinds.SOURCE_EXIT
    assert one.records[-1].payload["cause"] == KILLED
    tool, parent = one.open_listed()
    assert (tool["type"], tool["name"], tool["seq"]) == (kinds.TOOL_CALL, "get_weather", None)
    assert parent["missing_parent"] is True


def test_an_sdk_program_reads_like_a_story():
    executor = run(load("otel-sdk-python-1.45.2-grpc"), list)
    (one,) = executor.all_runs()
    assert [(r.type, r.name) for r in one.records[1:-2]] == [
        ("agent.start", "planner"),
        ("log", "plain.agent"),
        ("llm.prompt", "planner"),
        ("llm.response", "planner"),
        ("tool.call", "lookup"),
        ("tool.result", "lookup"),
        ("llm.prompt", "planner"),
        ("llm.response", "planner"),
        ("tool.call", "lookup"),
        ("tool.error", "lookup"),
        ("log", "plain.agent"),
        ("agent.end", "planner"),
    ]
    assert one.types()[0] == kinds.RUN_START
    assert one.types()[-2:] == [kinds.SOURCE_EXIT, kinds.RUN_END]
    start, end = one.records[0], one.records[-1]
    assert start.ts == one.records[1].ts
    assert end.ts == one.records[-3].ts
    assert start.payload["session_id"] == "conv-1"
    assert start.payload["service"] == "plain-agent"
    assert one.of(kinds.TOOL_ERROR)[0].payload["error_type"] == "TimeoutError"


# -- clients whose log records are the account -------------------------------------------------------


def only(requests: list[Request], *signals: Signal) -> list[Request]:
    return [r for r in requests if r.signal in signals]


@pytest.mark.parametrize("name", [n for n in LOGGED if not n.startswith("codex-0.171.0-full")])
def test_log_records_alone_tell_the_calls(name):
    capture = load(name)
    requests = only(capture.requests, Signal.LOGS)
    found = truth(replay(requests, cause="process exited", processes=capture.processes).all_runs())
    for key in ("runs", "llm_calls", "llm_errors", "tokens_in", "tokens_out", "tool_calls", "models"):
        assert found[key] == capture.expect[key], key


WITH_SPANS = [
    "claude-code-2.1.332-full-grpc",
    "claude-code-2.1.332-llm500",
    "claude-code-2.1.332-subagents",
    "gemini-cli-0.61.0-full-grpc",
    "gemini-cli-0.61.0-llm400",
]


@pytest.mark.parametrize("name", WITH_SPANS)
def test_spans_alone_tell_the_calls(name):
    capture = load(name)
    found = truth(replay(only(capture.requests, Signal.TRACES)).all_runs())
    for key in ("runs", "llm_calls", "llm_errors", "tokens_in", "tool_calls", "models", "run_status"):
        assert found[key] == capture.expect[key], key


@pytest.mark.parametrize("name", WITH_SPANS)
def test_log_records_that_come_after_their_spans_were_written_are_no_second_account(name):
    capture = load(name)
    late = [replace(r, at=r.at + 60) for r in only(capture.requests, Signal.LOGS)]
    executor = replay([*only(capture.requests, Signal.TRACES), *late])
    found = truth(executor.all_runs())
    for key in ("runs", "llm_calls", "llm_errors", "tokens_in", "tool_calls", "run_status"):
        assert found[key] == capture.expect[key], key
    records = sum(1 for r in executor.all_runs()[0].of(kinds.LOG))
    assert records == capture.expect["log_records"]


@pytest.mark.parametrize("spans_first", [False, True])
def test_a_tools_output_comes_from_its_span(spans_first):
    capture = load("claude-code-2.1.332-full-grpc")
    requests = reversed_requests(capture.requests) if spans_first else capture.requests
    (one,) = replay(requests).all_runs()
    (result,) = one.of(kinds.TOOL_RESULT)
    said = [r for r in one.records if r.payload.get("text") == "hello-from-tool"]
    assert len(said) == 1
    assert (said[0] is result) == spans_first
    if not spans_first:
        assert said[0].payload["of"] == result.src["span"]
    (end,) = one.of(kinds.AGENT_END)
    assert "inferred" not in end.payload


def test_a_full_codex_prompt_is_a_few_events():
    (one,) = run(load("codex-0.171.0-full-grpc"), list).all_runs()
    assert len(one.records) <= 24


def test_a_killed_claude_code_lists_the_tool_that_was_decided_on():
    (one,) = run(load("claude-code-2.1.332-sigkill"), list).all_runs()
    assert one.records[-1].payload["cause"] == KILLED
    tools = [s for s in one.open_listed() if s.get("type") == kinds.TOOL_CALL]
    assert [(s["name"], s["seq"] is not None) for s in tools] == [("Bash", True)]


def cut_before(capture: Capture, name: bytes) -> list[Request]:
    """What a program had told when it was killed before it told an event of that name."""
    logs = split(only(capture.requests, Signal.LOGS))
    return logs[: next(n for n, r in enumerate(logs) if name in r.body)]


@pytest.mark.parametrize("arrange", [list, doubled, reversed_requests])
def test_a_killed_codex_lists_the_tool_that_was_decided_on(arrange):
    requests = cut_before(load("codex-0.171.0-full-grpc"), b"codex.tool_result")
    (one,) = replay(arrange(requests), cause=KILLED).all_runs()
    assert one.status == "crashed"
    assert [s["name"] for s in one.open_listed() if s["type"] == kinds.TOOL_CALL] == ["exec_command"]
    assert len(one.of(kinds.LLM_PROMPT)) == len(one.of(kinds.LLM_RESPONSE)) == 1


@pytest.mark.parametrize("arrange", [list, doubled, reversed_requests])
def test_a_killed_gemini_lists_the_tool_its_model_asked_for(arrange):
    requests = cut_before(load("gemini-cli-0.61.0-full-grpc"), b"gemini_cli.tool_call")
    (one,) = replay(arrange(requests), cause=KILLED).all_runs()
    assert one.status == "crashed"
    assert not one.of(kinds.TOOL_CALL)
    (asked,) = [s for s in one.open_listed() if s["type"] == kinds.TOOL_CALL]
    (response,) = one.of(kinds.LLM_RESPONSE)
    assert (asked["name"], asked["requested_in"]) == ("run_shell_command", response.parent_seq)


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("codex-0.171.0-full-grpc", b"codex.sse_event"),
        ("gemini-cli-0.61.0-full-grpc", b"gemini_cli.api_response"),
    ],
)
def test_a_client_killed_while_its_model_answers_leaves_the_call_open(name, before):
    (one,) = replay(cut_before(load(name), before), cause=KILLED).all_runs()
    assert one.status == "crashed"
    assert [s["type"] for s in one.open_listed()] == [kinds.AGENT_START, kinds.LLM_PROMPT]


def test_subagents_stand_below_each_other():
    (one,) = run(load("claude-code-2.1.332-subagents"), list).all_runs()
    agents = one.of(kinds.AGENT_START)
    chain = [(a.name, a.parent_seq) for a in agents]
    first, second, third = (a.seq for a in agents if a.name == "general-purpose")
    assert chain[1:4] == [
        ("general-purpose", agents[0].seq),
        ("general-purpose", first),
        ("general-purpose", second),
    ]
    by_agent = {a.seq: 0 for a in agents}
    for call in one.of(kinds.LLM_PROMPT):
        by_agent[call.parent_seq] += 1
    assert by_agent == {agents[0].seq: 2, first: 2, second: 2, third: 1, agents[4].seq: 1}
    assert not one.open_listed()


def two_lives() -> list[Request]:
    """A session that was killed, and taken up again by another process, which counts anew."""
    killed, again = load("claude-code-2.1.332-sigkill"), load("claude-code-2.1.332-http-retry")
    old, new = (session_of(c) for c in (again, killed))
    second = [replace(r, at=r.at + 30, body=r.body.replace(old, new)) for r in again.requests]
    return [*killed.requests, *second]


def session_of(capture: Capture) -> bytes:
    body = next(r.body for r in capture.requests if r.signal is Signal.LOGS)
    at = body.index(b"session.id") + len(b"session.id")
    at = body.index(b"$", at) + 1
    return body[at : at + 36]


@pytest.mark.parametrize("arrange", [list, doubled, split])
@pytest.mark.parametrize("processes", [{}, {53832: 1, 53996: 2}])
def test_a_session_taken_up_again_is_the_next_attempt(arrange, processes):
    executor = replay(arrange(two_lives()), processes=processes)
    (one,) = executor.all_runs()
    assert [a.outcome for a in one.machine.state.attempts] == ["crashed", "ok"]
    assert [r.attempt for r in one.of(kinds.TOOL_CALL)] == [1]
    assert [r.attempt for r in one.of(kinds.LLM_PROMPT)] == [1, 2]
    assert [r.seq for r in one.records] == list(range(1, len(one.records) + 1))
    assert [s["name"] for s in one.open_listed() if s.get("type") == kinds.TOOL_CALL] == ["Bash"]
    assert not any(r.late for r in one.records)


@pytest.mark.parametrize("arrange", [reversed_requests, lambda requests: reversed_requests(split(requests))])
@pytest.mark.parametrize("processes", [{}, {53832: 1, 53996: 2}])
def test_what_an_earlier_process_told_and_comes_late_says_nothing_of_how_the_session_went(arrange, processes):
    in_order = truth(replay(two_lives()).all_runs())
    (one,) = replay(arrange(two_lives()), processes=processes).all_runs()
    found = truth([one])
    assert found["run_status"] == "ok"
    for key in ("llm_calls", "tool_calls", "tokens_in", "missing_parents", "cost_usd"):
        assert found[key] == in_order[key], key
    assert [s["name"] for s in one.open_listed() if s.get("type") == kinds.TOOL_CALL] == ["Bash"]


def test_a_session_that_counts_on_is_one_attempt():
    capture = load("claude-code-2.1.332-sigkill")
    (one,) = run(capture, split).all_runs()
    assert len(one.machine.state.attempts) == 1


@pytest.mark.parametrize("name", [n for n in LOGGED if n != "multi-process-3procs"])
def test_a_collector_that_starts_again_anywhere_goes_on_with_the_run(name):
    """Stopped after each request, with what it then knows from the records only."""
    capture = load(name)
    requests = split(capture.requests) if "subagents" not in name else capture.requests
    for cut in range(1, len(requests), max(1, len(requests) // 12)):
        executor = replay(requests, restarts=(cut,), cause=cause_of(capture), processes=capture.processes)
        found = truth(executor.all_runs())
        for key in ("runs", "llm_calls", "llm_errors", "tokens_in", "run_status"):
            assert found[key] == capture.expect[key], (cut, key)
        assert sorted(found["tool_calls"]) == sorted(capture.expect["tool_calls"]), cut


def cause_of(capture: Capture) -> str:
    return KILLED if capture.expect["run_status"] == "crashed" else "process exited"


@pytest.mark.parametrize("name", ["claude-code-2.1.332-full-grpc", "gemini-cli-0.61.0-full-grpc"])
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_items_in_any_order_tell_the_same(name, data):
    capture = load(name)
    pieces = split(capture.requests)
    times = [r.at for r in pieces]
    shuffled = [replace(r, at=at) for r, at in zip(data.draw(st.permutations(pieces)), times, strict=True)]
    expected, shown = comparable(capture, truth(replay(shuffled).all_runs()))
    assert expected == shown


# -- metrics -----------------------------------------------------------------------------------------

POINTS = {
    "claude-code-2.1.332-default-http": 7,
    "claude-code-2.1.332-http-retry": 7,
    "claude-code-2.1.332-subagents": 12,
    "codex-0.171.0-full-grpc": 197,
    "gemini-cli-0.61.0-llm400": 15,
    "google-adk-2.13.0": 8,
    "logfire-5.4.0-pending": 2,
    "multi-process-3procs": 7,
    "openllmetry-openai-0.40.14": 6,
    "otel-openai-v2-2.4b0-default": 7,
    "otel-sdk-node-0.223.0-grpc": 3,
    "otel-sdk-python-1.45.2-http-gzip": 1,
    "pydantic-ai-mcp-2.3.0": 2,
    "strands-agents-1.62.0": 16,
}


@pytest.mark.parametrize("arrangement", ["as recorded", "reversed", "in the other encoding"])
@pytest.mark.parametrize("name", POINTS)
def test_the_metrics_of_a_program_are_in_its_run(name, arrangement):
    executor = run(load(name), ARRANGEMENTS[arrangement])
    (key,) = executor.runs
    assert [m.key for m in executor.measured] == [key] * POINTS[name]


def test_the_metrics_of_a_program_of_two_runs_are_of_its_process():
    executor = run(load("pydantic-ai-2.68.0-two-agents"), list)
    assert len(executor.runs) == 2
    assert [m.key for m in executor.measured] == [None] * 4
