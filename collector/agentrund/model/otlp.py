"""OTLP on its way in: what a door knows of a sender, decoded items, and items mapped to events.

Decoded items (``SpanItem``, ``LogItem``, ``MetricItem``, ``BadItem``) are the wire's content as plain
values and know no convention. Mapped items (``MappedSpan``, ``MappedLog``, ``MappedMetric``, ``Pulse``) say
what the sequencer must know of them and carry the events they may become; they know no convention either,
so the sequencer never looks at an attribute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from agentrund.model.event import Event, Json
from agentrund.model.source import Identity


class Signal(StrEnum):
    """What a request carries."""

    TRACES = "traces"
    LOGS = "logs"
    METRICS = "metrics"


class Encoding(StrEnum):
    """How a request's body is written."""

    PROTOBUF = "protobuf"
    JSON = "json"


@dataclass(slots=True, frozen=True)
class Peer:
    """Who sent a request. The door knows the address and the run asked for; the service adds the process."""

    host: str | None = None
    port: int | None = None
    run_id: str | None = None
    identity: Identity = field(default_factory=Identity)
    hung_up: bool = False
    """The connection was gone before anybody could look who held it: a death, or an impatient caller."""
    our_port: int = 0
    """The port of ours it is connected to; not kept."""
    client: str = ""
    """What its exporter calls itself (user-agent), "" where it does not; not kept."""


@dataclass(slots=True, frozen=True)
class IntakeRecord:
    """One request of the intake journal; ``rq`` is its number, never used again for another."""

    rq: int
    arrived_at: float
    signal: Signal
    encoding: Encoding
    peer: Peer
    body: bytes


# -- decoded ---------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Resource:
    """The attributes all items of one sender share."""

    attributes: Json = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Scope:
    """The instrumentation library an item comes from."""

    name: str = ""
    version: str = ""


@dataclass(slots=True)
class SpanEvent:
    """Something that happened at one moment of a span."""

    name: str
    ts: float
    attributes: Json


@dataclass(slots=True)
class SpanLink:
    """A reference to another span; ids in hex."""

    trace: str
    span: str
    attributes: Json


@dataclass(slots=True)
class SpanItem:
    """A span. ``i`` counts the items of the request; ids are lower-case hex; ``size`` is its encoded size."""

    i: int
    resource: Resource
    scope: Scope
    trace: str
    span: str
    parent: str | None
    name: str
    kind: int
    start_ns: int
    end_ns: int
    flags: int
    state: str
    failed: bool
    status_code: int
    status_message: str
    attributes: Json
    events: list[SpanEvent]
    links: list[SpanLink]
    dropped: Json
    repairs: list[str]
    size: int

    @property
    def start(self) -> float:
        """Epoch seconds."""
        return self.start_ns / 1e9

    @property
    def end(self) -> float:
        """Epoch seconds."""
        return self.end_ns / 1e9


@dataclass(slots=True)
class LogItem:
    """A log record. ``time_ns`` is the sender's time or, where that is 0, the time it was observed."""

    i: int
    resource: Resource
    scope: Scope
    trace: str | None
    span: str | None
    event_name: str
    time_ns: int
    severity: int
    severity_text: str
    body: Any
    attributes: Json
    flags: int
    dropped: Json
    repairs: list[str]
    size: int


@dataclass(slots=True, frozen=True)
class Metric:
    """What the data points of one metric share. ``kind`` is ``sum``, ``gauge``, ``histogram`` …, or "".

    ``temporality`` is ``delta`` or ``cumulative``, where a kind has one and its sender says which.
    """

    name: str
    description: str
    unit: str
    kind: str
    temporality: str | None
    monotonic: bool | None
    metadata: Json


@dataclass(slots=True)
class MetricItem:
    """A data point of a metric; ``values`` is its content by kind, None where the metric has no point at all.

    Times are 0 where the sender does not say them.
    """

    i: int
    resource: Resource
    scope: Scope
    metric: Metric
    start_ns: int
    time_ns: int
    attributes: Json
    values: Json | None
    repairs: list[str]
    size: int


@dataclass(slots=True)
class BadItem:
    """An item that could not be read, and why; the others of its request are not affected."""

    i: int
    resource: Resource
    signal: Signal
    why: str
    size: int


Item = SpanItem | LogItem | MetricItem | BadItem


# -- mapped ----------------------------------------------------------------------------------------


class SpanKind(StrEnum):
    """What a span is to a run."""

    LLM = "llm"
    TOOL = "tool"
    AGENT = "agent"
    POINT = "point"
    """One ``log`` event: an embedding, a retrieval, a memory access, a guardrail."""
    STEP = "step"
    """A step its sender names as one; an agent where it is a (local) root, else only a place in the tree."""
    OTHER = "other"
    """A span of no known convention; treated as a step, but its faults matter only when it is a root."""
    DETAIL = "detail"
    """Never an event: transport under a call."""


class Fault(NamedTuple):
    """What went wrong, for telling one fault told several times from several faults."""

    type: str
    message: str


@dataclass(slots=True)
class MappedSpan:
    """A span, with the events it may become.

    ``opener`` and ``closer`` are set for every kind that may open a step, ``closer`` alone for a
    point; ``error`` tells of a fault no closing event carries. ``notice`` marks word of a span that
    has only begun: its id is that of the span, and there is no closer yet. ``shadow`` marks a client
    library's own account of a call that an instrumentation may tell as well.
    """

    i: int
    resource: Resource
    trace: str
    span: str
    parent: str | None
    remote: bool
    kind: SpanKind
    name: str
    scope: str
    start_ns: int
    end_ns: int
    size: int
    opener: Event | None = None
    closer: Event | None = None
    error: Event | None = None
    agent: str | None = None
    session: str | None = None
    failed: bool = False
    fault: Fault | None = None
    call_id: str | None = None
    notice: bool = False
    shadow: bool = False
    told_by: list[list[int]] = field(default_factory=list)
    """Log records whose content went into its events, each by request and item."""
    secondary: bool = False
    """Its client's log records tell the same, where they are sent."""
    logged: bool = False
    """A step told by log records: its parent is a hint, and of an agent the end may never be told."""
    turn: bool = False
    """A logged agent at work on one prompt; steps of no known parent belong to that of their time."""
    pair: str | None = None
    """Steps of one pair that are open and closed by records without a common id are matched by time."""
    worker: str | None = None
    """The subagent it is of, by the sender's own id."""
    joins: str | None = None
    count: int | None = None
    """Of a logged step, as of its record."""
    past: bool = False
    """Of an earlier process of its session, told after a later one has begun."""

    @property
    def entry(self) -> bool:
        """Whether it is a root, or a local root (its parent lies in another process)."""
        return self.turn if self.logged else self.parent is None or self.remote


@dataclass(slots=True)
class MappedLog:
    """A log record, with its event.

    ``fills`` marks a record that tells the content of the model call with the same span id: what
    that span's (opening, closing) payloads may lack. ``ends_session`` is a sender's own word of its end.

    Of a client whose logs are its account of a run a record is never held (``at_once``), may be
    ``steps`` rather than its ``event`` (which then stands where spans are the account), or ``noise``;
    ``adds`` is what the answer of the model call before it lacks (of ``worker``), ``joins`` the trace
    it was written in, ``count`` its number by the sender's own counting, which begins anew with a process.
    """

    i: int
    resource: Resource
    trace: str | None
    span: str | None
    time_ns: int
    event: Event
    size: int
    session: str | None = None
    fault: Fault | None = None
    fills: tuple[Json, Json] | None = None
    at_once: bool = False
    ends_session: bool = False
    steps: list[MappedSpan] = field(default_factory=list)
    noise: bool = False
    adds: Json | None = None
    worker: str | None = None
    joins: str | None = None
    count: int | None = None
    past: bool = False


@dataclass(slots=True)
class MappedMetric:
    """A data point, or a metric that could not be read: no event, a line beside the trace."""

    i: int
    resource: Resource
    item: MetricItem | BadItem
    session: str | None = None

    @property
    def size(self) -> int:
        """Its encoded size."""
        return self.item.size


@dataclass(slots=True, frozen=True)
class Point:
    """A data point with its origin: intake record, source, and when that record came, in epoch seconds."""

    rq: int
    source: str
    arrived_at: float
    metric: MappedMetric


@dataclass(slots=True)
class Pulse:
    """A sign of life without content."""

    i: int
    resource: Resource


Mapped = MappedSpan | MappedLog | MappedMetric | Pulse
