"""Log records (and items that could not be read) to mapped items.

A record is one ``log`` event, unless it tells the content of a model call, or a session's end.
"""

from __future__ import annotations

import re
from typing import Final

from agentrund.model import kinds
from agentrund.model.event import Event, Json
from agentrund.model.otlp import BadItem, Fault, LogItem, MappedLog
from agentrund.receivers.decode import call_fields, genai
from agentrund.receivers.decode import mapping_tables as tables
from agentrund.receivers.decode.attributes import Attributes, as_text
from agentrund.receivers.decode.labels import label
from agentrund.receivers.decode.profiles import profile_log
from agentrund.receivers.decode.session import session_of

_DOTTED: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)+")
_RUST_EVENT: Final = "event "
"""Rust names an event after its place in the source."""
_SESSION_END: Final = "session.end"


def map_log(item: LogItem) -> MappedLog:
    """A log record as its event."""
    name = _event_name(item)
    fills = _content(item, name)
    mapped = MappedLog(
        item.i,
        item.resource,
        item.trace,
        item.span,
        item.time_ns,
        _event(item, name),
        item.size,
        session=session_of(item.attributes, item.resource.attributes),
        fault=_fault(item.attributes),
        fills=fills,
        ends_session=name == _SESSION_END,
    )
    profile_log(mapped, item, name)
    return mapped


def map_bad(item: BadItem) -> MappedLog:
    """An item that was refused leaves a mark."""
    payload: Json = {
        "level": "WARNING",
        "message": f"OTLP {item.signal} item refused: {item.why}",
        "refused": "bad_otlp",
        "bytes": item.size,
    }
    event = Event(kinds.LOG, status="WARNING", payload=payload)
    session = session_of({}, item.resource.attributes)
    return MappedLog(item.i, item.resource, None, None, 0, event, item.size, session=session)


def level_of(severity: int) -> str:
    """The level of an OTLP severity number; none is INFO."""
    return next((level for lowest, level in tables.LEVELS if severity >= lowest), "INFO")


def _event_name(item: LogItem) -> str:
    if item.event_name and not item.event_name.startswith(_RUST_EVENT):
        return item.event_name
    name = item.attributes.get("event.name")
    if isinstance(name, str) and name:
        return name
    return item.body if isinstance(item.body, str) and _DOTTED.fullmatch(item.body) else ""


def _event(item: LogItem, name: str) -> Event:
    attributes = Attributes(item.attributes)
    level = level_of(item.severity)
    message = name if item.body is None else as_text(item.body)
    payload: Json = {"level": level, "message": message}
    if name and name != message:
        payload["event"] = name
    if isinstance(item.body, (dict, list)):
        payload["body"] = item.body
    if (stack := attributes.take_text("exception.stacktrace")) is not None:
        payload["text"] = stack
    if attributes.rest:
        payload["attributes"] = attributes.rest
    if item.dropped or item.repairs:
        payload["otel"] = {k: v for k, v in (("dropped", item.dropped), ("repairs", item.repairs)) if v}
    ts = item.time_ns / 1e9 if item.time_ns else None
    event = Event(kinds.LOG, item.scope.name or None, ts=ts, status=level, payload=payload)
    label(event, item.scope.name)
    return event


def _fault(attributes: Json) -> Fault | None:
    kind = attributes.get("exception.type")
    if not isinstance(kind, str) or not kind:
        return None
    return Fault(kind, as_text(attributes.get("exception.message") or ""))


def _content(item: LogItem, name: str) -> tuple[Json, Json] | None:
    """What a record tells of the model call with its span id."""
    if item.span is None:
        return None
    if name == genai.DETAILS_EVENT:
        attributes = Attributes(item.attributes)
        prompt, response = call_fields.take_call(attributes, [])
        if attributes.rest:
            response["attributes"] = attributes.rest
        return prompt, response
    if genai.is_message_event(name):
        return call_fields.message_fields(name, item.body)
    return None
