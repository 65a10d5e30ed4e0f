"""Claude Code: what its log records and its spans tell.

Records: scope ``com.anthropic.claude_code.events``, body ``claude_code.<name>``, one per thing that
happened; a tool's start is told when it is decided on, before it runs. Spans (a beta of its own):
scope ``com.anthropic.claude_code.tracing``, with the kind in ``span.type``.
"""

from __future__ import annotations

from typing import Final

from agentrund.model.event import Json
from agentrund.model.otlp import SpanItem, SpanKind
from agentrund.receivers.decode.attributes import Attributes
from agentrund.receivers.decode.client_record import ClientRecord

PREFIX: Final = "claude_code."
RECORDS: Final = "com.anthropic.claude_code.events"
SPANS: Final = "com.anthropic.claude_code.tracing"
NAME: Final = "claude-code"

ERRORS: Final = frozenset({"api_refusal", "internal_error"})
"""Faults of no model call."""
SERIOUS: Final = frozenset({"api_retries_exhausted"})
"""Tells of the same fault as the ``api_error`` before it: no error of its own, but its level."""

_SPAN_KINDS: Final = {"interaction": SpanKind.AGENT, "llm_request": SpanKind.LLM, "tool": SpanKind.TOOL}


def tell(record: ClientRecord) -> None:
    """The steps a record tells."""
    attributes = record.attributes
    record.worker = _text(attributes, "agent_id")
    around = agent_of(record)
    if (handler := _HANDLERS.get(record.name)) is not None:
        handler(record, around)


def agent_of(record: ClientRecord) -> str | None:
    """The id of the agent a record is of: a subagent, or that of the prompt."""
    if (worker := _text(record.attributes, "agent_id")) is not None:
        return f"agent-{worker}"
    return _turn(record)


def count_of(record: ClientRecord) -> int | None:
    """The record's number, which begins at 0 in each process."""
    count = record.look_number("event.sequence")
    return count if isinstance(count, int) and count >= 0 else None


def answer_of(record: ClientRecord) -> Json | None:
    """What a record tells of the answer of the model call before it."""
    text = _text(record.attributes, "response") if record.name == "assistant_response" else None
    return None if text is None else {"text": text}


def _prompt(record: ClientRecord, around: str | None) -> None:
    del around
    text = record.attributes.take_text("prompt")
    if record.attributes.look("prompt_text") == text:
        record.attributes.take("prompt_text")
    payload: Json = {} if text is None else {"input": text}
    record.opens(SpanKind.AGENT, NAME, payload, span=_turn(record), turn=True)


def _request(record: ClientRecord, around: str | None) -> None:
    name = _subagent(record)
    model = record.attributes.take_text("model")
    said: Json = {} if model is None else {"model": model}
    usage = _usage(record)
    cost = record.take_number("cost_usd")
    closing = said | usage | ({} if cost is None else {"cost_usd": cost})
    opening = said | {k: v for k, v in usage.items() if k == "tokens_in"}
    record.closes(SpanKind.LLM, name, opening, closing, parent=around)


def _failure(record: ClientRecord, around: str | None) -> None:
    name = _subagent(record)
    model = record.attributes.take_text("model")
    said: Json = {} if model is None else {"model": model}
    record.closes(SpanKind.LLM, name, dict(said), said, error=record.take_error(), parent=around)


def _usage(record: ClientRecord) -> Json:
    """Its ``input_tokens`` leave cached ones out."""
    usage = record.take_counts(
        tokens_in="input_tokens",
        tokens_out="output_tokens",
        cached_input_tokens="cache_read_tokens",
        cache_write_tokens="cache_creation_tokens",
    )
    if "tokens_in" in usage:
        usage["tokens_in"] += usage.get("cached_input_tokens", 0) + usage.get("cache_write_tokens", 0)
    return usage


def _decision(record: ClientRecord, around: str | None) -> None:
    name, call_id, more = _call(record)
    args = record.take_args("tool_input", "tool_parameters")
    decision = record.attributes.look("decision")
    if decision == "reject":
        source = record.attributes.look("source")
        error: Json = {"error_type": "rejected", "error": f"rejected by {source}" if source else "rejected"}
        closing = more | error
        record.closes(SpanKind.TOOL, name, more | args, closing, error=error, span=call_id, parent=around)
        return
    pair = None if call_id else _pair(record, name)
    record.opens(SpanKind.TOOL, name, more | args, span=call_id, parent=around, pair=pair)


def _result(record: ClientRecord, around: str | None) -> None:
    name, call_id, more = _call(record)
    args = record.take_args("tool_input", "tool_parameters")
    failed = str(record.attributes.look("success")).lower() == "false"
    error = record.take_error() if failed else None
    record.closes(
        SpanKind.TOOL,
        name,
        more | args,
        dict(more),
        error=error,
        span=call_id,
        parent=around,
        pair=None if call_id else _pair(record, name),
    )


def _call(record: ClientRecord) -> tuple[str, str | None, Json]:
    name = record.attributes.take_text("tool_name") or "tool"
    call_id = record.attributes.take_text("tool_use_id")
    return name, call_id, {} if call_id is None else {"call_id": call_id}


def _pair(record: ClientRecord, name: str) -> str:
    """Older versions gave a decision no id: it is paired with its result by time."""
    return f"{record.worker or ''}/{name}"


def _subagent_end(record: ClientRecord, around: str | None) -> None:
    if record.worker is None:
        return
    name = record.attributes.take_text("agent_type", "agent.name") or "subagent"
    record.closes(SpanKind.AGENT, name, {}, {}, span=around, parent=_parent(record))


def _subagent(record: ClientRecord) -> str:
    """The agent a model call is of; a subagent is known from its first call on."""
    if record.worker is None:
        return NAME
    name = record.attributes.take_text("agent.name")
    if name is not None:
        record.opens(
            SpanKind.AGENT,
            name,
            {},
            span=f"agent-{record.worker}",
            parent=_parent(record),
            start_ns=record.start_ns,
            keep=False,
        )
    return name or NAME


def _parent(record: ClientRecord) -> str | None:
    parent = _text(record.attributes, "parent_agent_id")
    return _turn(record) if parent is None else f"agent-{parent}"


def _turn(record: ClientRecord) -> str | None:
    prompt = _text(record.attributes, "prompt.id")
    return None if prompt is None else f"prompt-{prompt}"


def _text(attributes: Attributes, key: str) -> str | None:
    value = attributes.look(key)
    return value if isinstance(value, str) else None


_HANDLERS: Final = {
    "user_prompt": _prompt,
    "api_request": _request,
    "api_error": _failure,
    "tool_decision": _decision,
    "tool_result": _result,
    "subagent_completed": _subagent_end,
}


# -- spans -----------------------------------------------------------------------------------------


def span_kind(item: SpanItem) -> SpanKind:
    """What a span is."""
    return _SPAN_KINDS.get(str(item.attributes.get("span.type")), SpanKind.DETAIL)


def prepare(item: SpanItem, attributes: Attributes) -> None:
    """Give a span's attributes the names every span's have."""
    rest = attributes.rest
    if rest.get("span.type") == "interaction":
        rest.setdefault("gen_ai.agent.name", NAME)
        if (prompt := attributes.take("user_prompt")) is not None:
            rest.setdefault("input.value", prompt)
    for event in item.events:
        if event.name == "tool.output" and (output := event.attributes.get("output")) is not None:
            rest.setdefault("gen_ai.tool.call.result", output)


def worker_of(item: SpanItem) -> str | None:
    """The subagent a span is of."""
    worker = item.attributes.get("agent_id")
    return worker if isinstance(worker, str) else None
