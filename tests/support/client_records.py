"""Log records as Claude Code, Codex and Gemini CLI send them, mapped."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from agentrund.model.event import Json
from agentrund.model.otlp import Encoding, MappedLog, MappedSpan, Signal
from agentrund.receivers.decode.claude_code import RECORDS
from agentrund.receivers.decode.mapping import map_item
from agentrund.receivers.decode.otlp import decode
from support import otlp_build as build
from support.otlp_build import T0, TRACE, hex_id

SESSION = "s-1"


def record(
    attributes: Json,
    *,
    body: Any = None,
    scope: str = "app",
    service: str = "app",
    at: float = 10.0,
    written_in: int = 0,
    **fields: Any,
) -> MappedLog:
    """A mapped record, ``at`` seconds after ``T0``."""
    if written_in:
        fields |= {"trace_id": bytes.fromhex(TRACE), "span_id": bytes.fromhex(hex_id(written_in))}
    sent = LogRecord(
        body=build.any_value(body),
        attributes=build.key_values(attributes),
        time_unix_nano=round((T0 + at) * 1e9),
        **fields,
    )
    request = build.logs(sent, scope=scope, resource={"service.name": service})
    (item,) = (i for i in decode(Signal.LOGS, Encoding.PROTOBUF, request) if i is not None)
    out = map_item(item)
    assert isinstance(out, MappedLog)
    return out


def claude(name: str, attributes: Json | None = None, **fields: Any) -> MappedLog:
    said = {"session.id": SESSION, "event.name": name, **(attributes or {})}
    return record(said, body=f"claude_code.{name}", scope=RECORDS, service="claude-code", **fields)


def codex(name: str, attributes: Json | None = None, **fields: Any) -> MappedLog:
    said = {"conversation.id": SESSION, "event.name": f"codex.{name}", "model": "m", **(attributes or {})}
    fields.setdefault("event_name", "event otel/src/events.rs:1")
    return record(said, scope="codex_otel.log_only", service="codex_exec", **fields)


def gemini(
    name: str, attributes: Json | None = None, *, client: str = "gemini_cli.", **fields: Any
) -> MappedLog:
    said = {"session.id": SESSION, "event.name": f"{client}{name}", "prompt_id": "p", **(attributes or {})}
    service = "gemini-cli" if client == "gemini_cli." else "qwen-code"
    return record(said, body=f"About {name}.", scope=service, service=service, **fields)


def step(log: MappedLog) -> MappedSpan:
    """The only step of a record."""
    (one,) = log.steps
    return one


def types(log: MappedLog) -> list[str]:
    """The types of the events of a record's steps."""
    return [e.type for s in log.steps for e in (s.opener, s.closer) if e is not None]
