"""Recorded requests of real programs give the truth their manifests state, however they arrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentrund.model import kinds
from support.otlp_captures import Capture, Request, load
from support.otlp_execute import Executor, truth
from support.otlp_replay import KILLED, doubled, recoded, replay, reversed_requests, split

CAPTURES = [
    "google-adk-2.13.0",
    "google-adk-2.13.0-llm500",
    "logfire-5.4.0",
    "logfire-5.4.0-pending",
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
"""All that need no profile of their client. Not here: Claude Code, Codex and Gemini CLI (their logs are
the account of a run)."""

PROCESSES = {"pydantic-ai-mcp-2.3.0": {40066: 1, 40078: 2, 40080: 2}}
"""Connections of programs that are more than one process."""

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
    killed = capture.expect["run_status"] == "crashed"
    return replay(
        arrange(capture.requests),
        cause=KILLED if killed else "process exited",
        processes=PROCESSES.get(capture.name),
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
