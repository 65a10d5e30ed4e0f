"""A turn of Claude Code as its log records tell it, and as its spans do."""

from __future__ import annotations

from agentrund.model import kinds
from agentrund.model.otlp import Encoding, MappedLog, MappedSpan, Signal
from agentrund.receivers.decode.claude_code import SPANS
from agentrund.receivers.decode.mapping import map_item
from agentrund.receivers.decode.otlp import decode
from support import otlp_build as build
from support.client_records import SESSION, claude
from support.otlp_build import T0
from support.otlp_world import World

EXITED = "process exited: exit code 0"
OUTPUT = "gen_ai.tool.call.result"
KILLED = "process exited: killed by SIGKILL"
CALL = {"model": "m", "input_tokens": 7, "duration_ms": 1000, "prompt.id": "p1"}
TOOL = {"tool_name": "Bash", "tool_use_id": "t1", "prompt.id": "p1"}
HELPER = {"agent_id": "a", "agent.name": "helper"}
"""A subagent."""


def prompt(at: float = 1.0, turn: str = "p1") -> MappedLog:
    return claude("user_prompt", {"prompt.id": turn}, at=at)


def request(at: float = 3.0, **more) -> MappedLog:
    return claude("api_request", CALL | more, at=at)


def decision(at: float = 4.0) -> MappedLog:
    return claude("tool_decision", TOOL | {"decision": "accept"}, at=at)


def result(at: float = 5.0, success: str = "true", **more) -> MappedLog:
    return claude("tool_result", TOOL | {"success": success} | more, at=at)


def numbered(*records: MappedLog, first: int = 0) -> list[MappedLog]:
    for i, record in enumerate(records):
        record.i, record.count = i, first + i
        for step in record.steps:
            step.i = i
    return list(records)


def spans(*sent, scope: str = SPANS, service: str = "claude-code") -> list[MappedSpan]:
    body = build.traces(*sent, scope=scope, resource={"service.name": service})
    return [map_item(i) for i in decode(Signal.TRACES, Encoding.PROTOBUF, body) if i is not None]


def span(n: int, parent: int, kind: str, start: float, seconds: float, **attributes):
    said = {"session.id": SESSION, "span.type": kind, **attributes}
    return build.span(n, parent, name=kind, start=T0 + start, seconds=seconds, attributes=said)


def turn_spans() -> list[MappedSpan]:
    """The spans of a turn: its model call, its tool, and itself."""
    tool = span(3, 1, "tool", 4.0, 1.0, tool_name="Bash", tool_use_id="t1")
    tool.events.add(name="tool.output", attributes=build.key_values({"output": "done"}))
    call = span(2, 1, "llm_request", 2.0, 1.0, **{"gen_ai.response.model": "m", "stop_reason": "tool_use"})
    return spans(call, tool, span(1, 0, "interaction", 0.9, 5.0))


def shown(world: World) -> list[str]:
    return [t for t, _ in world.shown() if t != kinds.LOG]


def calls(world: World) -> list[str]:
    """Everything but plain logs, in no order."""
    return sorted(shown(world))


STORY = [
    kinds.AGENT_START,
    kinds.LLM_PROMPT,
    kinds.LLM_RESPONSE,
    kinds.TOOL_CALL,
    kinds.TOOL_RESULT,
]
