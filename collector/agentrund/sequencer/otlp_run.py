"""One OTLP run as far as its end is concerned: who takes part, what is open, how it went.

Decides what counts as open: a parent that never came, a beginning without an end, a tool call that
the last model answer asked for and nobody made. Gives no number and feeds no event.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from agentrund.model import kinds
from agentrund.model.event import Event, Json
from agentrund.model.otlp import MappedSpan, SpanKind
from agentrund.model.run_state import FAILED, OK
from agentrund.model.source import DOOR_OTLP, Arrival
from agentrund.sequencer.otlp_commands import BY_TRACE, RunKey
from agentrund.sequencer.producers import Producer
from agentrund.sequencer.trace_release import Fed, inferred_end
from agentrund.sequencer.trace_tree import Root, TraceTree

_REMEMBERED: Final = 64
"""Tool calls of a source that an answer may still be found to have asked for."""
_BEFORE_S: Final = 3600.0
"""Nothing that takes longer is told of after a crash: where it seems so, clocks do not agree."""
_LISTED: Final = 100
"""Open steps listed per source; a crash of a thousand spans is told by fewer."""


class _Made(NamedTuple):
    """A tool call that was made: of its span no more than that, for a span holds all that was said."""

    call_id: str | None
    name: str
    start_ns: int


@dataclass(slots=True)
class _Calls:
    """What one source's model asked for, and what was made of it.

    Calls come by arrival, which need not be their order in time: only the latest answer counts, and
    a tool call may be known before the answer that asked for it.
    """

    end_ns: int = 0
    trace: str = ""
    span: str = ""
    open: list[Json] = field(default_factory=list)
    made: deque[_Made] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def answered(self, call: MappedSpan, payload: Json) -> None:
        """A model call has ended."""
        if call.end_ns < self.end_ns:
            return
        self.end_ns, self.trace, self.span = call.end_ns, call.trace, call.span
        self.open = _requested(payload)
        for tool in self.made:
            if tool.start_ns >= call.end_ns:
                self.take(tool)

    def take(self, tool: _Made) -> Json | None:
        """A tool call was made: the request it answers, which is open no more."""
        for request in self.open:
            wanted = request.get("id")
            if wanted == tool.call_id if wanted and tool.call_id else request["name"] == tool.name:
                self.open.remove(request)
                return request
        return None


@dataclass(slots=True, eq=False)
class OtlpRun:
    """A run that is, or was, open. ``members`` are the sources of its attempt, True while they live."""

    key: RunKey
    session: str | None = None
    members: dict[str, bool] = field(default_factory=dict)
    trees: dict[str, TraceTree] = field(default_factory=dict)
    past: dict[str, TraceTree] = field(default_factory=dict)
    """Of earlier processes of its session, told late: what they left open says nothing of how it goes."""
    last_arrival: float = 0.0
    last_ts: float = 0.0
    ended: bool = False
    died_at: float | None = None
    late: set[str] = field(default_factory=set)
    """Sources that came after it had crashed, with what was under way by then."""
    _calls: dict[str, _Calls] = field(default_factory=dict)
    _last: tuple[int, bool] = (0, False)
    """When the last call ended, and whether that was a model call that failed."""
    _forgotten: list[Root] = field(default_factory=list)
    """The last root, and the last that is no call, of traces that are forgotten."""

    def living(self) -> list[str]:
        """Sources that have not left."""
        return [source for source, lives in self.members.items() if lives]

    def begin(self, session: str | None) -> None:
        """A new attempt: nothing of the one before counts."""
        self.session = self.session or session
        self.members, self.trees, self.past, self._calls, self._forgotten = {}, {}, {}, {}, []
        self.ended, self.died_at, self._last, self.late = False, None, (0, False), set()

    def end(self) -> None:
        """The attempt is over. Of its calls only those nobody made may still matter, to what comes late."""
        self.ended = True
        self._calls = {source: calls for source, calls in self._calls.items() if calls.open}

    def arrival(self, producer: Producer, fed: list[Fed]) -> Arrival:
        """How a source asks for its place in it, with the first of what it tells."""
        metadata: Json = {} if producer.service is None else {"service": producer.service}
        metadata["run_key"] = str(self.key)
        metadata["resource"] = producer.resource.attributes
        return Arrival(
            producer.id,
            producer.identity,
            DOOR_OTLP,
            self.session,
            metadata,
            began(producer.id, fed),
            late=self.ended,
        )

    def strangers(self, fed: list[Fed]) -> list[str]:
        """Sources of ``fed`` that did not take part in it, and had not begun what they tell when it crashed.

        A tool's server that exports after its caller has died did take part.
        """
        sources = dict.fromkeys(one.source for one in fed)
        others = [source for source in sources if source not in self.members or source in self.late]
        return [source for source in others if not self._crashed_after(began(source, fed))]

    def _crashed_after(self, ts: float | None) -> bool:
        at = self.died_at if self.ended else None
        return at is not None and ts is not None and at - _BEFORE_S <= ts <= at

    def note(self, fed: Fed) -> None:
        """Follow an event that is being fed."""
        event = fed.event
        if event.ts is not None:
            self.last_ts = max(self.last_ts, event.ts)
        if isinstance(fed.item, MappedSpan):
            self._note_span(fed.source, event, fed.item)

    def _note_span(self, source: str, event: Event, span: MappedSpan) -> None:
        calls = self._calls.setdefault(source, _Calls())
        if event.type == kinds.LLM_PROMPT:
            if span.start_ns >= calls.end_ns:
                calls.open = []
        elif event.type in (kinds.LLM_RESPONSE, kinds.LLM_ERROR):
            calls.answered(span, event.payload)
            self._last = max(self._last, (span.end_ns, event.type == kinds.LLM_ERROR))
        elif event.type == kinds.TOOL_CALL:
            made = _Made(span.call_id, span.name, span.start_ns)
            calls.made.append(made)
            request = next((r for c in self._calls.values() if (r := c.take(made)) is not None), None)
            if request is not None and "args" in request:
                # What the tool's sender does not say was said where it was asked for.
                event.payload.setdefault("args", request["args"])
        elif event.type == kinds.AGENT_END and span.entry:
            # What its model asked for last was the answer itself, or was not to be done.
            for call in self._calls.values():
                if call.trace == span.trace:
                    call.open = []
        elif event.type in (kinds.TOOL_RESULT, kinds.TOOL_ERROR, kinds.LOG):
            self._last = max(self._last, (span.end_ns, False))

    def forget(self, trace: str) -> None:
        """A trace of it is over: only how its root ended may still matter."""
        tree = self.trees.pop(trace, None)
        if tree is None:
            return
        roots = sorted([*self._forgotten, *tree.roots], key=lambda root: root.end_ns)
        self._forgotten = [*[r for r in roots if not r.leaf][-1:], *roots[-1:]]

    def inferred_ends(self, source: str) -> list[Event]:
        """The ends of a source's agents of which nobody tells one, now that it has gone, or its run ends."""
        return [
            inferred_end(tree, agent)
            for tree in (*self.trees.values(), *(t for t in self.past.values() if not t.begun()))
            for agent in tree.unended()
            if agent.source == source
        ]

    # -- what is open -----------------------------------------------------------------------------

    def awaits_model(self, source: str) -> bool:
        """Whether a turn of a source was not told to end, and its last step is no model call."""
        return any(
            turn.turn and turn.source == source and tree.last_of(turn).kind is not SpanKind.LLM
            for tree in self.trees.values()
            for turn in tree.unended()
        )

    def lacks(self, source: str | None = None) -> list[Json]:
        """Steps that were begun and never ended, and have no opening event: of one source, or of all."""
        return _missing(self.trees, source)

    def lacked(self, source: str) -> list[Json]:
        """As ``lacks``, of earlier processes."""
        return _missing(self.past, source)

    def asked(self, source: str | None = None) -> list[Json]:
        """Tool calls a model asked for that nobody made."""
        return [
            {
                "seq": None,
                "type": kinds.TOOL_CALL,
                "name": request["name"],
                "requested_in": {"source": owner, "span": calls.span},
            }
            for owner, calls in self._calls.items()
            if source in (None, owner)
            for request in calls.open
        ][:_LISTED]

    def has_begun(self, source: str | None = None) -> bool:
        """Whether a step has an opening event and no closing one yet."""
        return any(source in (None, n.source) for tree in self.trees.values() for n in tree.begun())

    def is_open(self, source: str | None = None) -> bool:
        """Whether anything of a source (of all) is open."""
        return bool(self.has_begun(source) or self.lacks(source) or self.asked(source))

    # -- how it went ------------------------------------------------------------------------------

    def roots(self) -> list[Root]:
        """All roots and local roots that have ended, in order of their end."""
        found = [root for tree in self.trees.values() for root in tree.roots]
        return sorted([*self._forgotten, *found], key=lambda root: root.end_ns)

    @property
    def is_rooted(self) -> bool:
        """Whether an agent, step or other root has ended."""
        return any(not root.leaf for root in self.roots())

    def status(self) -> str:
        """Failed where the last root is an error.

        Unless keyed by trace also where the last model call failed and nothing followed.
        """
        roots = self.roots()
        if roots and roots[-1].failed:
            return FAILED
        return FAILED if self._last[1] and self.key.by != BY_TRACE else OK


def began(source: str, fed: list[Fed]) -> float | None:
    """When the first of what is told of a source happened, in epoch seconds."""
    times = [one.event.ts for one in fed if one.source == source and one.event.ts is not None]
    return min(times, default=None)


def _missing(trees: dict[str, TraceTree], source: str | None) -> list[Json]:
    return [
        {"span": parent, "missing_parent": True}
        for tree in trees.values()
        for parent, owner in tree.holes().items()
        if source in (None, owner)
    ][:_LISTED]


def _requested(payload: Json) -> list[Json]:
    calls = payload.get("requested_tools")
    return [c for c in calls if isinstance(c, dict) and "name" in c] if isinstance(calls, list) else []
