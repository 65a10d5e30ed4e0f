"""Vercel's AI SDK up to version 6: messages and answers under ``ai.*``; version 7 speaks GenAI."""

from __future__ import annotations

from typing import Any

from agentrund.model.event import Json
from agentrund.receivers.decode.attributes import Attributes, parse
from agentrund.receivers.decode.conversation import normalised


def take_input(attributes: Attributes) -> list[Json]:
    """The messages of a prompt; taken out of ``attributes`` where they can be read."""
    messages = parse(attributes.look("ai.prompt.messages"))
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return []
    attributes.take("ai.prompt.messages")
    return [normalised({**message, "content": _content(message.get("content"))}) for message in messages]


def take_output(attributes: Attributes) -> list[Json]:
    """The answer: its words and the tools it asks for."""
    calls = parse(attributes.look("ai.response.toolCalls"))
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        return []
    attributes.take("ai.response.toolCalls")
    parts = [_part({"type": "tool-call", **call}) for call in calls]
    if (text := attributes.take_text("ai.response.text")) is not None:
        parts.insert(0, {"type": "text", "content": text})
    return [normalised({"role": "assistant", "parts": parts})]


def _content(content: Any) -> Any:
    return [_part(part) for part in content] if isinstance(content, list) else content


def _part(part: Any) -> Any:
    """A part by the names that GenAI gives it."""
    if not isinstance(part, dict):
        return part
    if part.get("type") == "tool-call":
        return {
            "type": "tool_call",
            "id": part.get("toolCallId"),
            "name": part.get("toolName"),
            "arguments": part.get("input", part.get("args")),
        }
    if part.get("type") == "tool-result":
        return {
            "type": "tool_call_response",
            "id": part.get("toolCallId"),
            "response": part.get("output", part.get("result")),
        }
    return part
