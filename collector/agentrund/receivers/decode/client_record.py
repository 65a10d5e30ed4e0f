"""A log record of a client whose log records are its account of a run, on its way to steps.

What the profiles of such clients share: reading counts that may be written as text, and making the
steps a record tells. A step is opened, closed or both; its id is the sender's own where it has one,
else that of the record, which is made of all it says, so that a record sent twice is the same again.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

from agentrund.model import kinds
from agentrund.model.event import Event, Json
from agentrund.model.otlp import LogItem, MappedSpan, SpanKind
from agentrund.receivers.decode import mapping_tables as tables
from agentrund.receivers.decode.attributes import Attributes, as_text, parse
from agentrund.receivers.decode.labels import label, short_name
from agentrund.receivers.decode.session import session_of

_OPENS: Final = {
    SpanKind.AGENT: kinds.AGENT_START,
    SpanKind.LLM: kinds.LLM_PROMPT,
    SpanKind.TOOL: kinds.TOOL_CALL,
}
_CLOSES: Final = {
    SpanKind.AGENT: (kinds.AGENT_END, kinds.AGENT_END),
    SpanKind.LLM: (kinds.LLM_RESPONSE, kinds.LLM_ERROR),
    SpanKind.TOOL: (kinds.TOOL_RESULT, kinds.TOOL_ERROR),
}
_LARGEST: Final = 10**18
_LONGEST_MS: Final = 10**10
"""Some four months; a duration beyond is none."""


class ClientRecord:
    """One record: ``name`` is its event's name less the client's prefix, ``attributes`` are taken from."""

    def __init__(self, item: LogItem, name: str) -> None:
        self.item = item
        self.name = name
        self.attributes = Attributes(item.attributes)
        self.session = session_of(item.attributes, item.resource.attributes)
        self.duration_ms = self.take_number("duration_ms") or 0
        self.worker: str | None = None
        self.steps: list[MappedSpan] = []

    @property
    def id(self) -> str:
        """An id made of all the record says."""
        said = repr(
            (self.name, self.item.time_ns, sorted(self.item.attributes.items(), key=lambda kv: kv[0]))
        )
        return blake2b(said.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    @property
    def start_ns(self) -> int:
        """When what took ``duration_ms`` began."""
        if not 0 <= self.duration_ms <= _LONGEST_MS:
            return self.item.time_ns
        return max(0, self.item.time_ns - round(self.duration_ms * 1e6))

    def take_number(self, *keys: str) -> float | int | None:
        """The first attribute of ``keys`` that is a number, or the text of one."""
        for key in keys:
            number = _number(self.attributes.rest.get(key))
            if number is not None:
                del self.attributes.rest[key]
                return number
        return None

    def look_number(self, key: str) -> float | int | None:
        """An attribute that is a number, or the text of one; it stays."""
        return _number(self.attributes.rest.get(key))

    def take_count(self, *keys: str) -> int | None:
        """The first attribute of ``keys`` that is a whole number of things, or the text of one."""
        number = self.take_number(*keys)
        return int(number) if number is not None and number >= 0 and number == int(number) else None

    def take_counts(self, **keys: str) -> Json:
        """Payload keys and the attributes that are their counts."""
        counts = {field: self.take_count(key) for field, key in keys.items()}
        return {field: count for field, count in counts.items() if count is not None}

    def take_error(self) -> Json:
        """Type and words of a fault."""
        error_type = self.attributes.take_text(
            "error.type", *tables.ERROR_TYPE_LAST, "http.response.status_code"
        )
        text = self.attributes.take_text(*tables.ERROR_TEXT, "error_message")
        return {"error_type": error_type or tables.UNKNOWN_ERROR, "error": text or ""}

    def take_args(self, *keys: str) -> Json:
        """A tool call's arguments, as a payload."""
        args = self.attributes.take(*keys)
        return {} if args is None else {"args": parse(args)}

    # -- steps ------------------------------------------------------------------------------------

    def opens(
        self, kind: SpanKind, name: str, payload: Json, *, span: str | None = None, **fields: Any
    ) -> MappedSpan:
        """A step begins; its end is told by another record."""
        start_ns = fields.pop("start_ns", self.item.time_ns)
        keep = fields.pop("keep", True)
        step = self._step(kind, name, span, (start_ns, start_ns), fields)
        step.notice = True
        payload = payload | self._kept() if keep else payload
        step.opener = self._event(_OPENS[kind], name, start_ns, payload)
        self.steps.append(step)
        return step

    def closes(
        self,
        kind: SpanKind,
        name: str,
        opening: Json,
        closing: Json,
        *,
        error: Json | None = None,
        span: str | None = None,
        **fields: Any,
    ) -> MappedSpan:
        """A step has ended; ``opening`` is what its beginning says where no other record has told that."""
        end_ns, start_ns = self.item.time_ns, fields.pop("start_ns", self.start_ns)
        step = self._step(kind, name, span, (start_ns, end_ns), fields)
        step.failed = error is not None
        step.opener = self._event(_OPENS[kind], name, start_ns, opening)
        good, bad = _CLOSES[kind]
        closing = {**(error or {}), **closing, **self._kept()}
        step.closer = self._event(bad if error is not None else good, name, end_ns, closing)
        step.closer.status = "ok" if error is None else "error"
        if end_ns > start_ns:
            step.closer.dur_ms = round((end_ns - start_ns) / 1e6)
        self.steps.append(step)
        return step

    def _step(
        self, kind: SpanKind, name: str, span: str | None, times: tuple[int, int], fields: Json
    ) -> MappedSpan:
        item, (start_ns, end_ns) = self.item, times
        return MappedSpan(
            i=item.i,
            resource=item.resource,
            trace="",
            span=short_name(span or self.id),
            parent=_short(fields.get("parent")),
            remote=False,
            kind=kind,
            name=short_name(name),
            scope=item.scope.name,
            start_ns=start_ns,
            end_ns=end_ns,
            size=item.size,
            agent=short_name(name) if kind is SpanKind.LLM else None,
            session=self.session,
            call_id=_short(span) if kind is SpanKind.TOOL else None,
            logged=True,
            turn=fields.get("turn", False),
            pair=_short(fields.get("pair")),
            worker=_short(self.worker),
        )

    def _event(self, kind: str, name: str, ns: int, payload: Json) -> Event:
        event = Event(kind, name, ts=ns / 1e9 if ns else None, payload=payload)
        label(event, name)
        return event

    def _kept(self) -> Json:
        """What has no field of its own; it is said once."""
        item = self.item
        kept: Json = {"attributes": dict(self.attributes.rest)} if self.attributes.rest else {}
        otel: Json = {
            "scope": item.scope.name,
            "scope_version": item.scope.version,
            "trace": item.trace,
            "span": item.span,
            "message": None if item.body is None else as_text(item.body),
            "dropped": item.dropped,
            "repairs": item.repairs,
        }
        kept["otel"] = {key: value for key, value in otel.items() if value}
        return kept


def _short(text: str | None) -> str | None:
    return None if text is None else short_name(text)


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = int(value) if value.isdecimal() else float(value)
        except ValueError:
            return None
    return value if isinstance(value, (int, float)) and abs(value) <= _LARGEST else None
