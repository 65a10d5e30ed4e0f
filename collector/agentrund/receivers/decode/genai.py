"""The OpenTelemetry GenAI conventions, today's and the older ones still sent: messages of a call.

Today's are JSON (or structured) attributes, older ones are flattened attributes, events of the span,
or log records of their own. All become the same normalised messages.
"""

from __future__ import annotations

from typing import Any, Final

from agentrund.model.event import Json
from agentrund.receivers.decode.attributes import Attributes, parse
from agentrund.receivers.decode.conversation import normalised

DETAILS_EVENT: Final = "gen_ai.client.inference.operation.details"
CHOICE_EVENT: Final = "gen_ai.choice"

_ROLE_EVENTS: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}

_BLOCK: Final = frozenset({"type", "text", "toolUse", "toolResult"})
"""Keys by which a block says what it is."""


def take_input(attributes: Attributes) -> list[Json]:
    """The messages of a prompt, system instructions first; taken out of ``attributes``."""
    messages: list[Json] = []
    instructions = parse(attributes.take("gen_ai.system_instructions"))
    if instructions:
        messages.append(normalised({"role": "system", "parts": instructions}))
    return [
        *messages,
        *_messages(attributes.take("gen_ai.input.messages"), "user"),
        *_unflattened(attributes, "gen_ai.prompt.", "user"),
    ]


def take_output(attributes: Attributes) -> tuple[list[Json], list[str]]:
    """The messages of an answer and the stop reasons they carry; taken out of ``attributes``."""
    raw = _as_list(parse(attributes.take("gen_ai.output.messages")))
    flattened = attributes.take_list("gen_ai.completion.")
    messages = [normalised(_with_role(m, "assistant")) for m in (*raw, *flattened)]
    return messages, _reasons([*raw, *flattened])


def is_message_event(name: str) -> bool:
    """Whether an event or log record of that name tells one message."""
    return name in _ROLE_EVENTS or name == CHOICE_EVENT


def event_message(name: str, values: Any) -> tuple[Json, list[str]]:
    """The message an event tells, and its stop reasons."""
    values = values if isinstance(values, dict) else {"content": values}
    inner = values.get("message")
    if isinstance(inner, dict):
        said = {**values, **inner}
    else:
        said = {**values, "content": _blocks(values.get("content", inner)), "message": None}
    return normalised(_with_role(said, _ROLE_EVENTS.get(name, "assistant"))), _reasons([values])


def _blocks(content: Any) -> Any:
    """Content that is a list of typed blocks written as JSON text; any other text is just text."""
    blocks = parse(content)
    if isinstance(blocks, list) and blocks and all(isinstance(b, dict) and _BLOCK & b.keys() for b in blocks):
        return blocks
    return content


def _messages(value: Any, role: str) -> list[Json]:
    return [normalised(_with_role(message, role)) for message in _as_list(parse(value))]


def _unflattened(attributes: Attributes, prefix: str, role: str) -> list[Json]:
    return [normalised(_with_role(message, role)) for message in attributes.take_list(prefix)]


def _with_role(message: Any, role: str) -> Any:
    if not isinstance(message, dict):
        return {"role": role, "content": message}
    return message if message.get("role") else {**message, "role": role}


def _as_list(value: Any) -> list[Any]:
    if value is None or value == "":
        return []
    return value if isinstance(value, list) else [value]


def _reasons(messages: list[Any]) -> list[str]:
    found = [m.get("finish_reason") for m in messages if isinstance(m, dict)]
    return [reason for reason in found if isinstance(reason, str) and reason]
