"""The last column of an agent.logs line and the block below it, assembled from a payload.

Decides what each event type says of itself. Returns raw text: escaping and framing are the
renderer's. Must not know seq, time or file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from agentrund.formats import document, figures
from agentrund.formats.spilled import is_ref, octets, pointer_of, preview_of
from agentrund.model import kinds
from agentrund.model.event import Json, Record
from agentrund.model.run_state import is_number
from agentrund.model.source import DOOR_OTLP

ARGS_MAX: Final = 200
"""Characters of a call's arguments that fit on its line."""
INLINE_MAX: Final = 120
"""Characters of a one-line text that fit on its event's line."""


Detail = tuple[str, str | None, str | None]
"""The detail column; the text of the frame below it, if any; the blob it is the beginning of, if any."""


Part = Callable[[Record, Json, list[str]], str | None]
"""Appends what its type says first; returns a block that takes the place of the text, if any."""


def describe(record: Record) -> Detail:
    """What the line of ``record`` says after its name."""
    payload, kind = record.payload, record.type
    rule = _RULES.get(kind) or (_SOURCE if kind.startswith("source.") else _OTHER)
    text, ref = payload.get("text"), payload.get("text_ref")
    if is_ref(ref):
        skip = rule.said_beside_ref
    elif text.__class__ is str:
        skip = rule.said_beside_text
    else:
        skip, text = rule.said, None
    if (src := record.src) is not None and src.get("k") == DOOR_OTLP:
        skip |= _BEHIND
    parts: list[str] = []
    block = rule.part(record, payload, parts)
    for key, value in payload.items():
        if key not in skip and value is not None:
            parts.append(pair(key, value))
    if is_ref(ref):
        parts.append(figures.pointer(octets(payload.get("bytes")), ref))
        return " · ".join(parts), preview_of(payload), ref
    if block is not None:
        return " · ".join(parts), block, None
    if text is None:
        return _with_spilled(parts, payload)
    return _with_text(parts, text)


def _with_text(parts: list[str], text: str) -> Detail:
    if len(text) > INLINE_MAX or "\n" in text:
        return " · ".join(parts), text, None
    if text:
        parts.append(text)
    return " · ".join(parts), None, None


def pair(key: str, value: Any) -> str:
    """``key=value``, a string quoted only where a blank would hide its end, the rest as Python shows it."""
    kind = value.__class__
    if kind is str:
        return f'{key}="{value}"' if not value or " " in value else f"{key}={value}"
    if kind is dict and (spilled := pointer_of(value)) is not None:
        return f"{key}={figures.pointer(*spilled)}"
    return f"{key}={value}"


def _with_spilled(parts: list[str], payload: Json) -> Detail:
    """A payload without ``text``: the beginning of its first spilled value, if any, is the block."""
    line = " · ".join(parts)
    for value in payload.values():
        if value.__class__ is dict:
            for candidate in (value, *value.values()):
                if candidate.__class__ is dict and (spilled := pointer_of(candidate)) is not None:
                    return line, preview_of(candidate), spilled[1]
    return line, None, None


def _shown(value: object) -> str:
    """A value inside a sentence: text as it is, a spilled one by its pointer."""
    if isinstance(value, dict) and (spilled := pointer_of(value)) is not None:
        return figures.pointer(*spilled)
    return str(value)


def _cost(payload: Json, parts: list[str]) -> None:
    cost = payload.get("cost_usd")
    if cost.__class__ is float:
        parts.append(figures.money(cost))
    elif cost is not None:
        parts.append(figures.money(cost) if is_number(cost) else pair("cost_usd", cost))


def _counted(payload: Json, key: str, unit: str, parts: list[str]) -> None:
    value = payload.get(key)
    if value.__class__ is int:
        if value:
            parts.append(f"{value} {unit}")
    elif value is not None:
        parts.append(pair(key, value))


def _nothing(_: Record, __: Json, ___: list[str]) -> None:
    return


def _whose(_: Record, payload: Json, parts: list[str]) -> None:
    if session := payload.get("session_id"):
        parts.append(f"session={session}")
    if framework := payload.get("framework"):
        version = payload.get("framework_version")
        parts.append(f"framework={framework}@{version}" if version else f"framework={framework}")
    if model := payload.get("model"):
        parts.append(f"model={model}")


def _resume(record: Record, payload: Json, parts: list[str]) -> None:
    if (attempt := payload.get("attempt")) is not None:
        parts.append(f"attempt={attempt}")
    if (last := payload.get("resume_seq")) is not None:
        parts.append(f"from={figures.anchor(last) if last.__class__ is int else last}")
    if (reason := payload.get("reason")) is not None:
        parts.append(f"reason={reason}")
    _whose(record, payload, parts)


def _run_end(record: Record, payload: Json, parts: list[str]) -> None:
    if record.status is not None:
        parts.append(record.status)
    if record.dur_ms is not None:
        parts.append(f"{figures.seconds(record.dur_ms)} active")
    _cost(payload, parts)
    for key, unit in (("llm_calls", "llm"), ("tool_calls", "tool"), ("errors", "errors")):
        value = payload.get(key)
        if value is not None:
            parts.append(f"{value} {unit}" if value.__class__ is int else pair(key, value))


def _agent_start(record: Record, _: Json, parts: list[str]) -> None:
    parts.append("parent=-" if record.parent_seq is None else f"parent={figures.anchor(record.parent_seq)}")


def _agent_end(record: Record, payload: Json, parts: list[str]) -> None:
    if record.status is not None:
        parts.append(record.status)
    if record.dur_ms is not None:
        parts.append(figures.seconds(record.dur_ms))
    _cost(payload, parts)


def _prompt(_: Record, payload: Json, parts: list[str]) -> None:
    _counted(payload, "messages", "msgs", parts)
    _counted(payload, "tokens_in", "tok", parts)


def _response(_: Record, payload: Json, parts: list[str]) -> None:
    if (reason := payload.get("stop_reason")) is not None:
        parts.append(f"stop={reason}")
    _counted(payload, "tokens_out", "tok", parts)
    _cost(payload, parts)
    requested = payload.get("requested_tools")
    if isinstance(requested, list) and requested:
        parts.append("asks for " + ", ".join(_tool_name(tool) for tool in requested))


def _tool_name(tool: object) -> str:
    return _shown(tool.get("name")) if isinstance(tool, dict) else _shown(tool)


def _call(_: Record, payload: Json, parts: list[str]) -> str | None:
    args = payload.get("args")
    if not isinstance(args, dict):
        if args is not None:
            parts.append(pair("args", args))
        return None
    line = " ".join([pair(key, value) for key, value in args.items()])
    if len(line) > ARGS_MAX:
        parts.append(f"{len(args)} args")
        return document.encode(args)[:-1].decode()
    if line:
        parts.append(line)
    return None


def _result(record: Record, _: Json, parts: list[str]) -> None:
    if record.status:
        parts.append(record.status)


def _failure(_: Record, payload: Json, parts: list[str]) -> None:
    error = payload.get("error")
    parts.append(f"{_shown(payload.get('error_type') or 'Error')}: {'' if error is None else _shown(error)}")


def _log(record: Record, payload: Json, parts: list[str]) -> None:
    # The record's status is the level in upper case, whichever way its sender spells it.
    level = record.status or payload.get("level") or "INFO"
    message = payload.get("message")
    parts.append(_shown(level) if message is None else f"{_shown(level)} {_shown(message)}")


_BEHIND: Final = frozenset({"attributes", "otel", "resource", "rollup", "output", "run_key", "door"})
"""What an OTLP sender's item holds beyond the vocabulary: in trace.jsonl in full, too much for a line."""


class _Rule:
    """What a type says first, and the payload keys that are said by it or by the block below."""

    __slots__ = ("part", "said", "said_beside_ref", "said_beside_text")

    def __init__(self, part: Part, *said: str, beside_text: str = "") -> None:
        self.part = part
        self.said = frozenset(said)
        self.said_beside_text = self.said | {"text", beside_text}
        self.said_beside_ref = self.said_beside_text | {"text_ref", "preview", "bytes"}


_IDENTITY: Final = (*kinds.IDENTITY_KEYS, "open", *_BEHIND)
_WHOSE: Final = (*_IDENTITY, "session_id", "framework", "framework_version", "model")
_ERROR: Final = _Rule(_failure, "error_type", "error")
_SOURCE: Final = _Rule(_nothing, *_IDENTITY, "n")
_OTHER: Final = _Rule(_nothing)

_RULES: Final = {
    kinds.RUN_START: _Rule(_whose, *_WHOSE),
    kinds.RUN_RESUME: _Rule(_resume, *_WHOSE, "attempt", "resume_seq", "reason"),
    kinds.RUN_END: _Rule(_run_end, "cost_usd", "llm_calls", "tool_calls", "errors"),
    kinds.AGENT_START: _Rule(_agent_start),
    kinds.AGENT_END: _Rule(_agent_end, "cost_usd"),
    # A structured conversation is the same words as the text below it.
    kinds.LLM_PROMPT: _Rule(_prompt, "messages", "tokens_in", beside_text="input"),
    kinds.LLM_RESPONSE: _Rule(_response, "stop_reason", "tokens_out", "cost_usd", "requested_tools"),
    kinds.LLM_ERROR: _ERROR,
    kinds.TOOL_CALL: _Rule(_call, "args"),
    kinds.TOOL_RESULT: _Rule(_result),
    kinds.TOOL_ERROR: _ERROR,
    kinds.ERROR: _ERROR,
    kinds.LOG: _Rule(_log, "level", "logger", "message"),
}
