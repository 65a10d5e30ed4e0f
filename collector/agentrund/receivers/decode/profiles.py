"""Clients with rules of their own: whose records and spans are theirs, and what comes of them.

A client's profile is a module: ``claude_code``, ``codex``, ``gemini`` (and Qwen Code). For them log
records are the account of a run: a record becomes steps (``MappedLog.steps``), or stays one ``log``
or ``error`` event; their spans tell the same (``MappedSpan.secondary``), or nothing (details).
"""

from __future__ import annotations

from typing import Final

from agentrund.model import kinds
from agentrund.model.event import Json
from agentrund.model.otlp import LogItem, MappedLog, MappedSpan, SpanItem, SpanKind
from agentrund.receivers.decode import claude_code, codex, gemini
from agentrund.receivers.decode.attributes import Attributes
from agentrund.receivers.decode.client_record import ClientRecord
from agentrund.receivers.decode.labels import short_name

_CODEX_SERVICE: Final = "codex"


def _service(item: LogItem | SpanItem) -> str:
    name = item.resource.attributes.get("service.name")
    return name if isinstance(name, str) else ""


# -- log records -----------------------------------------------------------------------------------


def profile_log(mapped: MappedLog, item: LogItem, name: str) -> None:
    """Make a record's steps, where it is a record of such a client."""
    if item.scope.name == claude_code.RECORDS:
        _claude_code(mapped, ClientRecord(item, name.removeprefix(claude_code.PREFIX)))
    elif name.startswith(codex.PREFIX):
        _codex(mapped, ClientRecord(item, name.removeprefix(codex.PREFIX)))
    elif _service(item) in gemini.SERVICES or name.startswith(tuple(gemini.NAMES)):
        _gemini(mapped, item, name)


def _claude_code(mapped: MappedLog, record: ClientRecord) -> None:
    claude_code.tell(record)
    _told(mapped, record, claude_code.NAME)
    agent = claude_code.agent_of(record)
    mapped.span = None if agent is None else short_name(agent)
    mapped.count = claude_code.count_of(record)
    mapped.adds = claude_code.answer_of(record)
    mapped.worker = None if record.worker is None else short_name(record.worker)
    if record.name in claude_code.ERRORS:
        mapped.event.type = kinds.ERROR
        mapped.event.status = "error"
        mapped.event.payload = {**_fault(record), **mapped.event.payload}
    elif record.name in claude_code.SERIOUS:
        mapped.event.status = mapped.event.payload["level"] = "ERROR"


def _fault(record: ClientRecord) -> Json:
    error = record.take_error()
    return {**error, "error_type": record.name} if error["error_type"] == "_OTHER" else error


def _codex(mapped: MappedLog, record: ClientRecord) -> None:
    codex.tell(record)
    _told(mapped, record, codex.NAME)
    mapped.noise = codex.is_noise(record)


def _gemini(mapped: MappedLog, item: LogItem, name: str) -> None:
    prefix = next((p for p in gemini.NAMES if name.startswith(p)), "")
    record = ClientRecord(item, name.removeprefix(prefix))
    client = gemini.NAMES.get(prefix) or _service(item)
    if prefix:
        gemini.tell(record, client)
    _told(mapped, record, client)


def _told(mapped: MappedLog, record: ClientRecord, client: str) -> None:
    """A record of such a client belongs to its session, whatever trace it was written in."""
    item = record.item
    mapped.steps = record.steps
    mapped.at_once = True
    mapped.joins, mapped.trace, mapped.span, mapped.fills = item.trace, None, None, None
    written = {"scope": item.scope.name, "trace": item.trace, "span": item.span}
    otel = mapped.event.payload.setdefault("otel", {})
    otel.update({key: value for key, value in written.items() if value})
    mapped.event.name = client


# -- spans -----------------------------------------------------------------------------------------


def profile_kind(item: SpanItem, kind: SpanKind) -> tuple[SpanKind, bool]:
    """What a span is, and whether log records tell the same; ``kind`` is what it is to everybody else."""
    if item.scope.name == claude_code.SPANS:
        return claude_code.span_kind(item), True
    service = _service(item)
    if service.startswith(_CODEX_SERVICE):
        return SpanKind.DETAIL, False
    if service in gemini.SERVICES and item.scope.name in gemini.SERVICES:
        return gemini.span_kind(item, kind), True
    return kind, False


def prepare_span(mapped: MappedSpan, item: SpanItem, attributes: Attributes) -> None:
    """Give what such a client says of a span the names every span has."""
    if item.scope.name == claude_code.SPANS:
        claude_code.prepare(item, attributes)
        mapped.worker = claude_code.worker_of(item)
    else:
        gemini.prepare(item, attributes)
