"""Codex: what its log records tell. Its spans (hundreds for a prompt) are its own inner workings: details.

Records: attribute ``event.name`` is ``codex.<name>``, with ``conversation.id`` on each. An accepted
request opens a model call, the completed stream closes it; the two have no id in common.
"""

from __future__ import annotations

import re
from typing import Final

from agentrund.model.event import Json
from agentrund.model.otlp import SpanKind
from agentrund.receivers.decode.client_record import ClientRecord

PREFIX: Final = "codex."
NAME: Final = "codex"

_STREAM: Final = frozenset({"sse_event", "websocket_event"})
_COMPLETED: Final = "response.completed"
_MODEL_CALLS: Final = "/responses"
_PAIR: Final = "call"
_EXIT: Final = re.compile(r"^Process exited with code (-?\d+)$", re.MULTILINE)
_HEAD: Final = 4096
"""The exit code stands in the first lines of an output."""
_FAILED_FROM: Final = 400


def tell(record: ClientRecord) -> None:
    """The steps a record tells."""
    if record.name in _STREAM:
        _stream(record)
    elif (handler := _HANDLERS.get(record.name)) is not None:
        handler(record)


def is_noise(record: ClientRecord) -> bool:
    """Whether a record says nothing of a run: one of the many pieces of a stream."""
    return record.name in _STREAM and not record.steps


def _prompt(record: ClientRecord) -> None:
    text = record.attributes.take_text("prompt")
    record.opens(SpanKind.AGENT, NAME, {} if text is None else {"input": text}, turn=True)


def _request(record: ClientRecord) -> None:
    endpoint = record.attributes.look("endpoint")
    if isinstance(endpoint, str) and _MODEL_CALLS not in endpoint:
        return
    attributes = record.attributes
    status = record.look_number("http.response.status_code")
    said = _model(record)
    if attributes.look("error.message") or (status is not None and status >= _FAILED_FROM):
        record.closes(SpanKind.LLM, NAME, dict(said), said, error=record.take_error())
    else:
        record.opens(SpanKind.LLM, NAME, said, pair=_PAIR, start_ns=record.start_ns)


def _stream(record: ClientRecord) -> None:
    attributes = record.attributes
    failed = bool(attributes.look("error.message"))
    if not failed and (
        attributes.look("event.kind") != _COMPLETED or attributes.look("input_token_count") is None
    ):
        return
    said = _model(record)
    usage = record.take_counts(
        tokens_in="input_token_count",
        tokens_out="output_token_count",
        cached_input_tokens="cached_token_count",
        cache_write_tokens="cache_write_token_count",
        reasoning_tokens="reasoning_token_count",
    )
    error = record.take_error() if failed else None
    end = record.item.time_ns
    record.closes(SpanKind.LLM, NAME, dict(said), said | usage, error=error, pair=_PAIR, start_ns=end)


def _decision(record: ClientRecord) -> None:
    name, call_id, more = _call(record)
    decision = str(record.attributes.look("decision") or "").lower()
    if decision.startswith(("denied", "abort", "reject")):
        error: Json = {"error_type": decision, "error": f"{decision} by {record.attributes.look('source')}"}
        record.closes(SpanKind.TOOL, name, dict(more), more, error=error, span=call_id)
    else:
        record.opens(SpanKind.TOOL, name, more, span=call_id, pair=None if call_id else name)


def _result(record: ClientRecord) -> None:
    name, call_id, more = _call(record)
    args = record.take_args("arguments")
    output = record.attributes.take_text("output")
    error = _fault(record, output)
    closing = more if output is None else more | {"text": output}
    pair = None if call_id else name
    record.closes(SpanKind.TOOL, name, more | args, closing, error=error, span=call_id, pair=pair)


def _fault(record: ClientRecord, output: str | None) -> Json | None:
    """It calls a command that ran a success, whatever its exit code."""
    if str(record.attributes.look("success")).lower() == "false":
        error = record.take_error()
        return {**error, "error": error["error"] or (output or "")[:_HEAD]}
    code = _EXIT.search((output or "")[:_HEAD])
    if code is None or code[1] == "0":
        return None
    return {"error_type": "exit_code", "error": f"exit code {code[1]}"}


def _call(record: ClientRecord) -> tuple[str, str | None, Json]:
    name = record.attributes.take_text("tool_name") or "tool"
    call_id = record.attributes.take_text("call_id")
    return name, call_id, {} if call_id is None else {"call_id": call_id}


def _model(record: ClientRecord) -> Json:
    model = record.attributes.take_text("model")
    return {} if model is None else {"model": model}


_HANDLERS: Final = {
    "user_prompt": _prompt,
    "api_request": _request,
    "tool_decision": _decision,
    "tool_result": _result,
}
