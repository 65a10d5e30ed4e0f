"""Messages of every convention in one form, and what a person reads of them.

A message is ``{"role": …, "parts": [part, …]}``, as the GenAI conventions have it: parts are ``text``,
``tool_call`` (id, name, arguments), ``tool_call_response`` (id, response) and whatever else is sent,
which passes through.
"""

from __future__ import annotations

from typing import Any

from agentrund.model.event import Json
from agentrund.receivers.decode.attributes import as_text, parse
from agentrund.receivers.decode.strict_json import encode


def normalised(message: Any) -> Json:
    """A message of any known shape: GenAI parts, OpenAI content and tool_calls, Bedrock blocks, text."""
    if not isinstance(message, dict):
        return {"role": "user", "parts": _parts(message)}
    inner = message.get("message")
    if isinstance(inner, dict):
        message = {**message, **inner}
    parts = _parts(message.get("parts"))
    parts += _parts(message.get("content"))
    parts += [_tool_call(call) for call in _objects(message.get("tool_calls"))]
    role = message.get("role")
    if role == "tool" and (call_id := message.get("tool_call_id", message.get("id"))) and parts:
        response = parts[0].get("content") if len(parts) == 1 and parts[0].get("type") == "text" else parts
        if not any(part.get("type") == "tool_call_response" for part in parts):
            parts = [{"type": "tool_call_response", "id": call_id, "response": response}]
    return {"role": role if isinstance(role, str) else "user", "parts": parts}


def conversation(messages: list[Json]) -> str:
    """All messages: a ``[role]`` line, the content, a blank line between."""
    return "\n\n".join(f"[{m['role']}]\n{_content(m['parts'])}" for m in messages)


def answer(messages: list[Json]) -> str | None:
    """The words of a model's answer, without the tool calls it asks for; None where there are none."""
    texts = [
        as_text(part.get("content"))
        for message in messages
        for part in message["parts"]
        if part.get("type") == "text"
    ]
    return "\n".join(text for text in texts if text) or None


def requested_tools(messages: list[Json]) -> list[Json]:
    """The tool calls a model's answer asks for: id, name and, where given, args."""
    calls: dict[bytes, Json] = {}
    for message in messages:
        for part in message["parts"]:
            if part.get("type") == "tool_call" and isinstance(part.get("name"), str):
                call: Json = {"id": part.get("id"), "name": part["name"]}
                if part.get("arguments") is not None:
                    call["args"] = parse(part["arguments"])
                calls.setdefault(encode(call), call)
    return list(calls.values())


def _content(parts: list[Json]) -> str:
    return "\n".join(_shown(part) for part in parts)


def _shown(part: Json) -> str:
    kind = part.get("type")
    if kind == "text":
        return as_text(part.get("content"))
    if kind == "tool_call":
        return f"{part.get('name')}({as_text(part.get('arguments') or {})})"
    if kind == "tool_call_response":
        return as_text(part.get("response"))
    return as_text(part)


def _parts(value: Any) -> list[Json]:
    if value is None or value == "":
        return []
    if isinstance(value, list):
        return [_part(item) for item in value]
    return [_part(value)]


def _part(value: Any) -> Json:
    if not isinstance(value, dict):
        return {"type": "text", "content": value}
    if "type" not in value:
        return _block(value)
    if value["type"] == "text" and "content" not in value:
        return {"type": "text", "content": value.get("text")}
    return value


def _block(value: Json) -> Json:
    """Bedrock's and Gemini's blocks say what they are by their key."""
    if isinstance(use := value.get("toolUse"), dict):
        return {
            "type": "tool_call",
            "id": use.get("toolUseId"),
            "name": use.get("name"),
            "arguments": use.get("input"),
        }
    if isinstance(result := value.get("toolResult"), dict):
        return {
            "type": "tool_call_response",
            "id": result.get("toolUseId"),
            "response": result.get("content"),
        }
    if isinstance(call := value.get("functionCall"), dict):
        return {
            "type": "tool_call",
            "id": call.get("id"),
            "name": call.get("name"),
            "arguments": call.get("args"),
        }
    if isinstance(made := value.get("functionResponse"), dict):
        return {"type": "tool_call_response", "id": made.get("id"), "response": made.get("response")}
    if "text" not in value:
        return value
    return {"type": "reasoning" if value.get("thought") is True else "text", "content": value["text"]}


def _tool_call(call: Json) -> Json:
    function = call.get("function")
    said = {**call, **function} if isinstance(function, dict) else call
    return {
        "type": "tool_call",
        "id": said.get("id"),
        "name": said.get("name"),
        "arguments": said.get("arguments"),
    }


def _objects(value: Any) -> list[Json]:
    value = parse(value)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
