"""Gemini CLI, and Qwen Code, which grew out of it: what their log records and spans tell.

Records: attribute ``event.name`` is ``gemini_cli.<name>`` or ``qwen-code.<name>``. A model call's
request and its answer are two records that only share their ``prompt_id``.
"""

from __future__ import annotations

from typing import Any, Final

from agentrund.model.event import Json
from agentrund.model.otlp import SpanItem, SpanKind
from agentrund.receivers.decode.attributes import Attributes, as_text, parse
from agentrund.receivers.decode.client_record import ClientRecord
from agentrund.receivers.decode.conversation import answer, conversation, normalised, requested_tools

NAMES: Final = {"gemini_cli.": "gemini-cli", "qwen-code.": "qwen-code"}
"""The agent's name by the prefix of its events."""
SERVICES: Final = frozenset(NAMES.values())

_SCHEDULE: Final = "schedule_tool_calls"
_BEGINS: Final = frozenset({"started", "start"})


def tell(record: ClientRecord, client: str) -> None:
    """The steps a record tells; ``client`` is the name of the agent."""
    if (handler := _HANDLERS.get(record.name)) is not None:
        handler(record, client)


def _prompt(record: ClientRecord, client: str) -> None:
    text = record.attributes.take_text("prompt")
    record.opens(SpanKind.AGENT, client, {} if text is None else {"input": text}, turn=True)


def _request(record: ClientRecord, client: str) -> None:
    said = _model(record)
    messages = _contents(parse(record.attributes.look("request_text")))
    if messages:
        record.attributes.take("request_text")
        said |= {"messages": len(messages), "text": conversation(messages), "input": messages}
    elif (text := record.attributes.take_text("request_text")) is not None:
        said["text"] = text
    record.opens(SpanKind.LLM, client, said, pair=_pair(record))


def _response(record: ClientRecord, client: str) -> None:
    said = _model(record)
    usage = record.take_counts(
        tokens_in="input_token_count",
        cached_input_tokens="cached_content_token_count",
        reasoning_tokens="thoughts_token_count",
    )
    usage |= _tokens_out(record, usage)
    closing = said | usage
    reasons = record.attributes.take("finish_reasons")
    if isinstance(reasons, list):
        reasons = ", ".join(dict.fromkeys(map(str, reasons)))
    if reasons:
        closing["stop_reason"] = str(reasons)
    closing |= _answer(record)
    opening = said | {k: v for k, v in usage.items() if k == "tokens_in"}
    record.closes(SpanKind.LLM, client, opening, closing, pair=_pair(record))


def _tokens_out(record: ClientRecord, usage: Json) -> Json:
    """Its ``output_token_count`` leaves thoughts out; the total has them."""
    total, tools = record.look_number("total_token_count"), record.look_number("tool_token_count") or 0
    if total is not None and "tokens_in" in usage:
        out = int(total - usage["tokens_in"] - tools)
        if out >= 0:
            return {"tokens_out": out}
    return record.take_counts(tokens_out="output_token_count")


def _failure(record: ClientRecord, client: str) -> None:
    said = _model(record)
    if record.duration_ms == 0:
        record.duration_ms = record.take_number("duration") or 0
    error = record.take_error()
    record.closes(SpanKind.LLM, client, dict(said), said, error=error, pair=_pair(record))


def _tool(record: ClientRecord, client: str) -> None:
    del client
    name = record.attributes.take_text("function_name") or "tool"
    call_id = record.attributes.take_text("call_id", "tool_call_id")
    more: Json = {} if call_id is None else {"call_id": call_id}
    args = record.take_args("function_args")
    failed = str(record.attributes.look("success")).lower() == "false"
    error = record.take_error() if failed else None
    record.closes(SpanKind.TOOL, name, more | args, more, error=error, span=call_id)


def _agent_start(record: ClientRecord, client: str) -> None:
    name, span = _subagent(record, client)
    record.opens(SpanKind.AGENT, name, {}, span=span)


def _agent_finish(record: ClientRecord, client: str) -> None:
    name, span = _subagent(record, client)
    record.closes(SpanKind.AGENT, name, {}, {}, span=span)


def _subagent_execution(record: ClientRecord, client: str) -> None:
    name, span = _subagent(record, client)
    pair = None if span else f"agent/{name}"
    if str(record.attributes.look("status")).lower() in _BEGINS:
        record.opens(SpanKind.AGENT, name, {}, span=span, pair=pair)
    else:
        failed = str(record.attributes.look("status")).lower() == "failed"
        error = record.take_error() if failed else None
        record.closes(SpanKind.AGENT, name, {}, {}, error=error, span=span, pair=pair)


def _subagent(record: ClientRecord, client: str) -> tuple[str, str | None]:
    name = record.attributes.take_text("agent_name", "subagent_name") or client
    agent_id = record.attributes.take_text("agent_id")
    return name, None if agent_id is None else f"agent-{agent_id}"


def _model(record: ClientRecord) -> Json:
    model = record.attributes.take_text("model", "model_name")
    return {} if model is None else {"model": model}


def _pair(record: ClientRecord) -> str:
    return str(record.attributes.look("prompt_id") or "")


# -- content ---------------------------------------------------------------------------------------


def _answer(record: ClientRecord) -> Json:
    """The text of an answer, and the tools it asks for."""
    given = parse(record.attributes.look("response_text"))
    chunks = given if isinstance(given, list) else [given]
    contents = [
        candidate.get("content")
        for chunk in chunks
        if isinstance(chunk, dict)
        for candidate in chunk.get("candidates") or ()
        if isinstance(candidate, dict)
    ]
    messages = _joined(_contents(contents))
    if not messages:
        text = record.attributes.take_text("response_text")
        return {} if text is None else {"text": text}
    record.attributes.take("response_text")
    out: Json = {}
    if (text := answer(messages)) is not None:
        out["text"] = text
    if calls := requested_tools(messages):
        out["requested_tools"] = calls
        out["output"] = messages
    return out


def _joined(messages: list[Json]) -> list[Json]:
    """A streamed answer, which comes in pieces, as one message."""
    parts: list[Json] = []
    for part in (part for message in messages for part in message["parts"]):
        last = parts[-1] if parts else {}
        if part.get("type") == last.get("type") == "text":
            last["content"] = as_text(last["content"]) + as_text(part.get("content"))
        else:
            parts.append(dict(part))
    return [{"role": messages[0]["role"], "parts": parts}] if messages else []


def _contents(given: Any) -> list[Json]:
    """Contents as its model's interface writes them, as messages."""
    found = given if isinstance(given, list) else []
    return [normalised(content) for content in found if isinstance(content, dict) and "parts" in content]


_HANDLERS: Final = {
    "user_prompt": _prompt,
    "api_request": _request,
    "api_response": _response,
    "api_error": _failure,
    "tool_call": _tool,
    "agent.start": _agent_start,
    "agent.finish": _agent_finish,
    "subagent_execution": _subagent_execution,
}


# -- spans -----------------------------------------------------------------------------------------


def span_kind(item: SpanItem, kind: SpanKind) -> SpanKind:
    """What a span is; a batch of tool calls is nobody's step."""
    return SpanKind.DETAIL if item.attributes.get("gen_ai.operation.name") == _SCHEDULE else kind


def prepare(item: SpanItem, attributes: Attributes) -> None:
    """Give a tool span's content the names every span's has."""
    if item.attributes.get("gen_ai.tool.name") is None:
        return
    given, made = (parse(attributes.look(f"gen_ai.{side}.messages")) for side in ("input", "output"))
    if isinstance(given, dict) and given.get("args") is not None:
        attributes.rest.setdefault("gen_ai.tool.call.arguments", given["args"])
    if (output := _output(made)) is not None:
        attributes.rest.setdefault("gen_ai.tool.call.result", output)


def _output(made: Any) -> Any:
    response = made.get("response") if isinstance(made, dict) else None
    if not isinstance(response, dict):
        return None
    return response.get("resultDisplay") or response.get("responseParts")
