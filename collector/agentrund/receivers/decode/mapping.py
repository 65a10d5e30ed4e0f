"""Items to mapped items: what a span is, and the events it may become.

Decides kinds and fields; the tables hold what can be data, ``genai`` and ``openinference`` read
messages, ``log_mapping`` does log records. Whether a span's events are written at all, under which
parent and in which order, is the sequencer's. Nothing a sender says is dropped: what has no field of
its own stays under ``attributes``, and what OTLP itself says of a span under ``otel``.
"""

from __future__ import annotations

from typing import Final

from agentrund.model import kinds
from agentrund.model.event import Event, Json
from agentrund.model.otlp import (
    BadItem,
    Fault,
    Item,
    LogItem,
    Mapped,
    MappedMetric,
    MappedSpan,
    MetricItem,
    Pulse,
    Signal,
    SpanItem,
    SpanKind,
)
from agentrund.receivers.decode import call_fields, log_mapping, openinference
from agentrund.receivers.decode import mapping_tables as tables
from agentrund.receivers.decode.attributes import Attributes, as_text, parse
from agentrund.receivers.decode.labels import label, short_name
from agentrund.receivers.decode.profiles import prepare_span, profile_kind
from agentrund.receivers.decode.session import session_of

_REMOTE_KNOWN: Final = 0x100
_REMOTE: Final = 0x200
_SERVER_KINDS: Final = frozenset({2, 5})
"""SERVER and CONSUMER: where a sender does not say it, their parents lie in another process."""
_KIND_NAMES: Final = {2: "server", 3: "client", 4: "producer", 5: "consumer"}

_ERRORS: Final = {kinds.LLM_RESPONSE: kinds.LLM_ERROR, kinds.TOOL_RESULT: kinds.TOOL_ERROR}

_EXECUTE_TOOL: Final = "execute_tool "
_ALIVE: Final = "agentrund.alive"
"""The metric by which `agentrund_client.otel` says every few seconds that its process lives."""
_PENDING_TYPE: Final = "logfire.span_type"
_PENDING_PARENT: Final = "logfire.pending_parent_id"
_NO_PARENT: Final = "0" * 16


def map_item(item: Item) -> Mapped:
    """What the sequencer must know of an item."""
    if isinstance(item, SpanItem):
        return _span(item)
    if isinstance(item, LogItem):
        return log_mapping.map_log(item)
    if isinstance(item, BadItem) and item.signal is not Signal.METRICS:
        return log_mapping.map_bad(item)
    return _metric(item)


def span_kind(attributes: Json) -> SpanKind:
    """What a span with these attributes is."""
    for rule in tables.KIND_RULES:
        value = attributes.get(rule.attribute)
        if value is None:
            continue
        kind = rule.values.get(str(value).lower(), rule.other)
        if kind is not None:
            return kind
    return SpanKind.OTHER


def _metric(item: MetricItem | BadItem) -> MappedMetric | Pulse:
    attributes: Json = {}
    if isinstance(item, MetricItem):
        if item.values is None or item.metric.name == _ALIVE:
            return Pulse(item.i, item.resource)
        attributes = item.attributes
    return MappedMetric(item.i, item.resource, item, session_of(attributes, item.resource.attributes))


def _span(item: SpanItem) -> MappedSpan:
    attributes = Attributes(item.attributes)
    kind, secondary = profile_kind(item, span_kind(item.attributes))
    notice = item.attributes.get(_PENDING_TYPE) == "pending_span" and item.parent is not None
    span, parent = item.span, item.parent
    if notice and item.parent is not None:
        # A notice's own id means nothing: it hangs below the span it announces.
        span, parent = item.parent, _pending_parent(item)
    mapped = MappedSpan(
        item.i,
        item.resource,
        item.trace,
        span,
        parent,
        parent is not None and _is_remote(item),
        kind,
        item.name,
        item.scope.name,
        item.start_ns,
        item.end_ns,
        item.size,
        session=session_of(item.attributes, item.resource.attributes),
        failed=item.failed or item.attributes.get("gen_ai.tool.status") == "error",
        notice=notice,
        shadow=item.scope.name in tables.SHADOW_SCOPES,
        secondary=secondary,
    )
    if secondary:
        prepare_span(mapped, item, attributes)
    if kind is SpanKind.DETAIL:
        return mapped
    error = _error(item, attributes, mapped.failed)
    if error is not None:
        mapped.fault = Fault(error["error_type"], error["error"])
    _BUILDERS[kind](mapped, item, attributes, error)
    if notice:
        mapped.closer = mapped.error = None
    for event in (mapped.opener, mapped.closer, mapped.error):
        if event is not None:
            label(event, event.name or mapped.name)
    mapped.name = short_name(mapped.name)
    return mapped


def _pending_parent(item: SpanItem) -> str | None:
    parent = item.attributes.get(_PENDING_PARENT)
    return parent if isinstance(parent, str) and parent != _NO_PARENT else None


def _is_remote(item: SpanItem) -> bool:
    if item.flags & _REMOTE_KNOWN:
        return bool(item.flags & _REMOTE)
    return item.kind in _SERVER_KINDS


# -- one builder for each kind ---------------------------------------------------------------------


def _llm(mapped: MappedSpan, item: SpanItem, attributes: Attributes, error: Json | None) -> None:
    agent = attributes.look(*tables.AGENT_NAME)
    mapped.agent = short_name(agent) if isinstance(agent, str) else None
    prompt, response = call_fields.take_call(attributes, item.events)
    mapped.opener = Event(kinds.LLM_PROMPT, ts=_ts(item.start_ns), payload=prompt)
    _close(mapped, item, kinds.LLM_RESPONSE, response | _kept(item, attributes), error)


def _tool(mapped: MappedSpan, item: SpanItem, attributes: Attributes, error: Json | None) -> None:
    name = attributes.take_text(*tables.TOOL_NAME)
    mapped.name = name or openinference.tool_name(item.name.removeprefix(_EXECUTE_TOOL), attributes)
    call_id = attributes.take_text(*tables.TOOL_CALL_ID)
    mapped.call_id = None if call_id == tables.NO_CALL_ID else call_id
    call: Json = {}
    arguments = attributes.take(*tables.TOOL_ARGS)
    if arguments is not None:
        call["args"] = parse(arguments)
    result: Json = {}
    output = attributes.take(*tables.TOOL_RESULT)
    if output is not None:
        result["text"] = as_text(output)
    if mapped.call_id is not None:
        call["call_id"] = result["call_id"] = mapped.call_id
    mapped.opener = Event(kinds.TOOL_CALL, ts=_ts(item.start_ns), payload=call)
    _close(mapped, item, kinds.TOOL_RESULT, result | _kept(item, attributes), error)


def _agent(mapped: MappedSpan, item: SpanItem, attributes: Attributes, error: Json | None) -> None:
    if mapped.kind is SpanKind.AGENT:
        mapped.name = attributes.take_text(*tables.AGENT_NAME) or item.name
    start: Json = {}
    if (given := attributes.take("gen_ai.input.messages", *tables.RAW_INPUT)) is not None:
        start["input"] = parse(given)
    end = _rollup(attributes)
    if (made := attributes.take("gen_ai.output.messages", *tables.RAW_OUTPUT)) is not None:
        end["output"] = parse(made)
    end |= _kept(item, attributes)
    mapped.opener = Event(kinds.AGENT_START, ts=_ts(item.start_ns), payload=start)
    mapped.closer = Event(
        kinds.AGENT_END,
        ts=_ts(item.end_ns),
        status="error" if mapped.failed else "ok",
        dur_ms=_dur_ms(item),
        payload=end,
    )
    if error is not None and (mapped.kind is not SpanKind.OTHER or _has_exception(item) or mapped.entry):
        mapped.error = _error_event(mapped, item, error)


def _point(mapped: MappedSpan, item: SpanItem, attributes: Attributes, error: Json | None) -> None:
    kind = str(attributes.take(openinference.KIND) or "").lower()
    operation = tables.POINT_NAMES.get(kind) or attributes.take_text("gen_ai.operation.name") or item.name
    level = "ERROR" if mapped.failed else "INFO"
    payload: Json = {"level": level, "message": item.name}
    if (model := attributes.take_text(*tables.MODEL)) is not None:
        payload["model"] = model
    payload |= call_fields.take_usage(attributes)
    if error is not None and mapped.failed:
        payload |= error
    payload |= _kept(item, attributes)
    mapped.closer = Event(
        kinds.LOG, operation, ts=_ts(item.end_ns), status=level, dur_ms=_dur_ms(item), payload=payload
    )


_BUILDERS: Final = {
    SpanKind.LLM: _llm,
    SpanKind.TOOL: _tool,
    SpanKind.AGENT: _agent,
    SpanKind.STEP: _agent,
    SpanKind.OTHER: _agent,
    SpanKind.POINT: _point,
}


def _close(mapped: MappedSpan, item: SpanItem, good: str, payload: Json, error: Json | None) -> None:
    """The closing event of a call; a fault of one that went well becomes an event of its own."""
    if mapped.failed and error is not None:
        if "text" in error and "text" in payload:
            payload["output_text"] = payload.pop("text")
        payload = {**error, **payload}
    elif error is not None:
        mapped.error = _error_event(mapped, item, error)
    mapped.closer = Event(
        _ERRORS[good] if mapped.failed else good,
        ts=_ts(item.end_ns),
        status="error" if mapped.failed else "ok",
        dur_ms=_dur_ms(item),
        payload=payload,
    )


# -- what all kinds share --------------------------------------------------------------------------


def _rollup(attributes: Attributes) -> Json:
    """An agent's usage is the sum of its calls': kept where nobody adds it up again."""
    end: Json = {}
    if (cost := attributes.take_amount(*tables.COST)) is not None:
        end["cost_usd"] = cost
    if usage := call_fields.take_usage(attributes):
        end["rollup"] = usage
    return end


def _error(item: SpanItem, attributes: Attributes, failed: bool) -> Json | None:  # noqa: FBT001
    """Type and words of a span's fault: of its last exception, its status, its attributes."""
    exceptions = [event for event in item.events if event.name == "exception"]
    if not failed and not exceptions:
        return None
    exception = exceptions[-1].attributes if exceptions else {}
    error_type = (
        attributes.take_text(*tables.ERROR_TYPE)
        or exception.get("exception.type")
        or (attributes.take_text(*tables.ERROR_TYPE_LAST) if failed else None)
        or tables.UNKNOWN_ERROR
    )
    text = exception.get("exception.message") or item.status_message
    if not text and failed:
        text = attributes.take_text(*tables.ERROR_TEXT) or ""
    error: Json = {"error_type": as_text(error_type), "error": as_text(text)}
    if stack := exception.get("exception.stacktrace"):
        error["text"] = as_text(stack)
    return error


def _has_exception(item: SpanItem) -> bool:
    return any(event.name == "exception" for event in item.events)


def _error_event(mapped: MappedSpan, item: SpanItem, error: Json) -> Event:
    return Event(kinds.ERROR, mapped.name, ts=_ts(item.end_ns), status="error", payload=error)


def _kept(item: SpanItem, attributes: Attributes) -> Json:
    """What has no field of its own."""
    kept: Json = {"attributes": attributes.rest} if attributes.rest else {}
    told = [event for event in item.events if not call_fields.is_told(event)]
    last = next((e for e in reversed(told) if e.name == "exception"), None)
    otel: Json = {
        "scope": item.scope.name,
        "scope_version": item.scope.version,
        "kind": _KIND_NAMES.get(item.kind, ""),
        "name": item.name,
        "status_message": item.status_message,
        "trace_state": item.state,
        "events": [{"name": e.name, "ts": e.ts, "attributes": e.attributes} for e in told if e is not last],
        "links": [{"trace": n.trace, "span": n.span, "attributes": n.attributes} for n in item.links],
        "dropped": item.dropped,
        "repairs": item.repairs,
    }
    kept["otel"] = {key: value for key, value in otel.items() if value}
    return kept


def _ts(ns: int) -> float | None:
    return ns / 1e9 if ns else None


def _dur_ms(item: SpanItem) -> int:
    return max(0, round((item.end_ns - item.start_ns) / 1e6))
