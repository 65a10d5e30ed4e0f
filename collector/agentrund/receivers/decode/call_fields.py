"""The fields of a model call: payloads of ``llm.prompt`` and ``llm.response`` from attributes and events."""

from __future__ import annotations

from typing import Any

from agentrund.model.event import Json
from agentrund.model.otlp import SpanEvent
from agentrund.receivers.decode import genai, openinference, vercel
from agentrund.receivers.decode import mapping_tables as tables
from agentrund.receivers.decode.attributes import Attributes, as_text, parse
from agentrund.receivers.decode.conversation import answer, conversation, requested_tools


def take_call(attributes: Attributes, events: list[SpanEvent]) -> tuple[Json, Json]:
    """The payloads of a call's opening and closing event; what they use is taken out of ``attributes``."""
    # A details event repeats the span's attributes and adds the content.
    for event in events:
        if event.name == genai.DETAILS_EVENT:
            for key, value in event.attributes.items():
                attributes.rest.setdefault(key, value)
    given = (
        genai.take_input(attributes)
        or openinference.take_messages(attributes, "llm.input_messages.", "user")
        or vercel.take_input(attributes)
    )
    made, reasons = genai.take_output(attributes)
    made = (
        made
        or openinference.take_messages(attributes, "llm.output_messages.", "assistant")
        or vercel.take_output(attributes)
    )
    for event in events:
        if genai.is_message_event(event.name):
            message, more = genai.event_message(event.name, event.attributes)
            (made if event.name == genai.CHOICE_EVENT else given).append(message)
            reasons += more
    prompt: Json = {}
    response: Json = {}
    if (model := attributes.take_text(*tables.MODEL)) is not None:
        prompt["model"] = response["model"] = model
    usage = take_usage(attributes)
    if "tokens_in" in usage:
        prompt["tokens_in"] = usage["tokens_in"]
    stop = _stop_reason(attributes.take(*tables.STOP_REASON)) or ", ".join(dict.fromkeys(reasons))
    if stop:
        response["stop_reason"] = stop
    response |= usage
    if (cost := attributes.take_amount(*tables.COST)) is not None:
        response["cost_usd"] = cost
    _put_prompt(prompt, given, attributes)
    _put_answer(response, made, attributes)
    return prompt, response


def message_fields(name: str, values: Any) -> tuple[Json, Json]:
    """The payload parts one message record tells: of the opening and of the closing event."""
    message, reasons = genai.event_message(name, values)
    prompt: Json = {}
    response: Json = {}
    if name != genai.CHOICE_EVENT:
        _put_prompt(prompt, [message], None)
        return prompt, response
    if reasons:
        response["stop_reason"] = ", ".join(reasons)
    _put_answer(response, [message], None)
    return prompt, response


def take_usage(attributes: Attributes) -> Json:
    """The token counts, cached ones included in ``tokens_in``."""
    counts = {field: attributes.take_count(*keys) for field, keys in tables.COUNTS.items()}
    return {field: count for field, count in counts.items() if count is not None}


def is_told(event: SpanEvent) -> bool:
    """Whether a span event is part of the payloads already."""
    return event.name == genai.DETAILS_EVENT or genai.is_message_event(event.name)


def _put_prompt(prompt: Json, messages: list[Json], attributes: Attributes | None) -> None:
    if messages:
        prompt["messages"] = len(messages)
        prompt["text"] = conversation(messages)
        prompt["input"] = messages
    elif attributes is not None and (raw := attributes.take_text(*tables.RAW_INPUT)) is not None:
        prompt["text"] = raw


def _put_answer(response: Json, messages: list[Json], attributes: Attributes | None) -> None:
    if messages:
        if (text := answer(messages)) is not None:
            response["text"] = text
        if calls := requested_tools(messages):
            response["requested_tools"] = calls
        if any(part.get("type") != "text" for message in messages for part in message["parts"]):
            response["output"] = messages
    elif attributes is not None and (raw := attributes.take_text(*tables.RAW_OUTPUT)) is not None:
        response["text"] = raw


def _stop_reason(value: Any) -> str | None:
    """As sent: one word, a list of them, or a list written as JSON."""
    value = parse(value)
    if isinstance(value, list):
        return ", ".join(dict.fromkeys(as_text(reason) for reason in value)) or None
    return None if value is None else as_text(value)
