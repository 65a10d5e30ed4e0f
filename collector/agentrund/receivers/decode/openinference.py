"""OpenInference: flattened messages, and tool spans that are handoffs."""

from __future__ import annotations

from typing import Any, Final

from agentrund.model.event import Json
from agentrund.receivers.decode.attributes import Attributes
from agentrund.receivers.decode.conversation import normalised

KIND: Final = "openinference.span.kind"

_HANDOFF: Final = "handoff to "


def take_messages(attributes: Attributes, prefix: str, role: str) -> list[Json]:
    """The messages under ``prefix`` (``llm.input_messages.``); taken out of ``attributes``."""
    return [_message(entry.get("message"), role) for entry in attributes.take_list(prefix)]


def tool_name(span_name: str, attributes: Attributes) -> str:
    """A tool without a name is called by its span; all handoffs are one tool, whoever they go to."""
    if KIND in attributes.rest and span_name.startswith(_HANDOFF):
        return _HANDOFF.split(" ", 1)[0]
    return span_name


def _message(message: Any, role: str) -> Json:
    if not isinstance(message, dict):
        return {"role": role, "parts": []}
    parts = [_content(entry.get("message_content")) for entry in _entries(message.get("contents"))]
    calls = [entry.get("tool_call") for entry in _entries(message.get("tool_calls"))]
    return normalised(
        {
            "role": message.get("role") or role,
            "content": message.get("content"),
            "parts": [part for part in parts if part is not None],
            "tool_calls": [call for call in calls if isinstance(call, dict)],
            "tool_call_id": message.get("tool_call_id"),
        }
    )


def _entries(value: Any) -> list[Json]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _content(content: Any) -> Json | None:
    """One part of a message; a tool use is told by the message's tool_calls as well."""
    if not isinstance(content, dict) or content.get("type") == "tool_use":
        return None
    if content.get("type") == "text":
        return {"type": "text", "content": content.get("text")}
    return content
