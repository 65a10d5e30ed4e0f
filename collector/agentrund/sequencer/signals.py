"""Clients that tell the same twice, as log records and as spans: which one is the account (D8).

Log records are, as soon as there are any; the spans, which are held as all spans are, fill what the
records lack. Where no record has come while the spans were held, the spans are the account, and
records that come later are plain ``log`` events. Either way a call is one call, in any order of arrival.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from agentrund.model import kinds
from agentrund.model.event import Event, Json
from agentrund.model.otlp import MappedLog, MappedSpan, SpanKind
from agentrund.sequencer.otlp_trace import Trace, no_trace
from agentrund.sequencer.trace_hold import Held
from agentrund.sequencer.trace_release import COUNTED, Fed, inferred_end
from agentrund.sequencer.trace_tree import Node, Role, TraceTree

_OPENING: Final = ("args", "input")
_CLOSING: Final = ("text", "requested_tools", "output", "stop_reason")


class Primary(Enum):
    """Which signal is the account."""

    UNDECIDED = "undecided"
    LOGS = "logs"
    TRACES = "traces"


class Life(Enum):
    """Of which process of a session a record is: the one at work, the next one, or one before it."""

    SAME = "same"
    NEXT = "next"
    PAST = "past"


@dataclass(slots=True, eq=False)
class Account:
    """What is known of the two signals of one session."""

    primary: Primary = Primary.UNDECIDED
    held: dict[str, MappedSpan] = field(default_factory=dict)
    """Spans that wait, by trace and id."""
    matched: dict[str, str] = field(default_factory=dict)
    """Those of them that have filled a step, with its id."""
    counts: dict[int, int] = field(default_factory=dict)
    """The sender's own numbers, with the time of the record that bore them in milliseconds."""
    began: int = 1 << 62
    ended: int = 0
    """When its process told the first and the last of what came, in milliseconds."""
    past: int | None = None
    """What is not later than this is of an earlier process."""

    last: float = 0.0

    def told(self, item: MappedLog) -> list[MappedSpan | MappedLog]:
        """What a record is to the run: the steps it tells, itself as an event, or nothing."""
        if self.primary is Primary.UNDECIDED:
            self.primary = Primary.LOGS
        if item.noise:
            return []
        if self.primary is Primary.TRACES or not item.steps:
            return [item]
        for step in item.steps:
            step.count, step.joins = item.count, item.joins
        return [*item.steps]

    def life_of(self, record: MappedLog) -> Life:
        """Which process of its session a record is of, by the sender's own number of it.

        Each process counts anew: a number that comes with another time than before is of another one.
        """
        count, ms = record.count, record.time_ns // 1_000_000
        if self.past is not None and ms <= self.past:
            return Life.PAST
        known = None if count is None else self.counts.get(count)
        if known is not None and ms < known:
            self.past = self.began - 1
            return Life.PAST
        anew = known is not None and ms > known
        if anew:
            self.past, self.began, self.counts = self.ended, ms, {}
        self.began, self.ended = min(self.began, ms), max(self.ended, ms)
        if count is not None and count < COUNTED:
            self.counts[count] = ms
        return Life.NEXT if anew else Life.SAME

    def is_past(self, spans: list[MappedSpan]) -> bool:
        """Whether spans are of an earlier process than the one that is at work."""
        return self.past is not None and all(span.end_ns // 1_000_000 <= self.past for span in spans)

    def restore(self, src: Json) -> None:
        """Learn from the ``src`` of a record that is written."""
        if "half" in src and "trace" not in src:
            self.primary = Primary.LOGS
        elif src.get("signal") == "traces" and self.primary is Primary.UNDECIDED:
            self.primary = Primary.TRACES
        match src.get("count"):
            case [int(count), int(ms)]:
                self.counts = self.counts if self.counts.get(count, ms) == ms else {}
                self.counts[count] = ms
                self.began, self.ended = min(self.counts.values()), max(self.ended, ms)

    def hold(self, span: MappedSpan) -> None:
        """A span waits with the others of its trace."""
        self.held[_id(span)] = span

    def fill(self, step: MappedSpan) -> None:
        """Give a step that is about to be written what a waiting span knows of it."""
        if step.closer is None or step.opener is None:
            return
        span = _match(step, [s for key, s in self.held.items() if key not in self.matched])
        if span is None:
            return
        self.matched[_id(span)] = step.span
        for event, more, wanted in (
            (step.opener, span.opener, _OPENING),
            (step.closer, span.closer, _CLOSING),
        ):
            if more is not None:
                for key in wanted:
                    if key in more.payload:
                        event.payload.setdefault(key, more.payload[key])

    def knows_end(self, turn: Node) -> bool:
        """Whether a span that waits tells the end of a turn."""
        return any(s.kind is SpanKind.AGENT and _covers(s, turn) for s in self.held.values())

    def fold(self, tree: TraceTree, spans: list[Held], steps: TraceTree | None) -> list[Fed]:
        """Spans of ``tree`` that have waited: where log records tell them, their places among ``steps``.

        Returns what of them is still to be said. Where no record has come, they are the account.
        """
        out: list[Fed] = []
        if self.primary is not Primary.LOGS:
            self.primary = Primary.TRACES
        for held in spans:
            span = held.item
            if not isinstance(span, MappedSpan):
                continue
            self.held.pop(_id(span), None)
            filled = self.matched.pop(_id(span), None)
            node = tree.node(span.span)
            if self.primary is Primary.TRACES or node is None or node.item is not span:
                continue
            step = None if steps is None else steps.node(filled) or _find(steps, span)
            node.role = Role.SILENT
            if step is None:
                continue
            node.role, node.into = Role.MERGED, step
            event = _end(step, span) if step.kind is SpanKind.AGENT else None
            if event is None and filled is None:
                event = _rest(step, span)
            if event is not None:
                event.src = {"rq": held.rq, "i": span.i, **(event.src or {})}
                out.append(Fed(held.source, event, _as_log(span, event)))
        return out


class Accounts:
    """The accounts of all sessions (of a process, where its items name none)."""

    def __init__(self) -> None:
        self._by_key: dict[str, Account] = {}

    def of(self, key: str, now: float) -> Account:
        """The account of a session."""
        account = self._by_key.get(key)
        if account is None:
            account = self._by_key[key] = Account()
        account.last = max(account.last, now)
        return account

    def is_told(self, span: MappedSpan, source: str) -> bool:
        """Whether it is decided which signal tells what ``span`` tells."""
        account = self._by_key.get(span.session or source)
        return account is not None and account.primary is not Primary.UNDECIDED

    def settle(self, trace: Trace, batch: list[Held], traces: dict[str, Trace], now: float) -> list[Fed]:
        """Let the spans and the steps of a batch fill each other; what else its spans have to say."""
        spans: dict[tuple[Account, str], list[Held]] = {}
        for held in batch:
            item = held.item
            if isinstance(item, MappedSpan) and (item.logged or item.secondary):
                account = self.of(item.session or held.source, now)
                if item.logged:
                    account.fill(item)
                else:
                    own = no_trace(held.source, item.session)
                    spans.setdefault((account, own), []).append(held)
        out: list[Fed] = []
        for (account, where), waited in spans.items():
            steps = traces.get(where)
            out += account.fold(trace.tree, waited, None if steps is None else steps.tree)
        return out

    def former_turns(self, trace: Trace, now: float) -> list[Fed]:
        """The ends of turns of which nobody will tell one, now that the next has begun."""
        former = trace.tree.logged.former()
        if not former:
            return []
        account = self.of(trace.session or former[0].source, now)
        return [
            Fed(turn.source, inferred_end(trace.tree, turn), None)
            for turn in former
            if not account.knows_end(turn)
        ]

    def forget(self, then: float, wanted: Collection[str]) -> None:
        """Give up what was not heard of since ``then``; sessions and sources that are ``wanted`` stay."""
        self._by_key = {
            key: account
            for key, account in self._by_key.items()
            if account.last >= then or account.held or key in wanted
        }


def _id(span: MappedSpan) -> str:
    return f"{span.trace}/{span.span}"


def _match(step: MappedSpan, spans: list[MappedSpan]) -> MappedSpan | None:
    """The span that tells the same call as a step."""
    calls = [span for span in spans if _is_same(span, step)]
    return max(calls, key=lambda span: _shared(span, step), default=None)


def _find(steps: TraceTree, span: MappedSpan) -> Node | None:
    """The step that is written of what a span tells."""
    if span.kind is SpanKind.AGENT:
        turns = [t for t in steps.logged.turns if _covers(span, t)]
        return max(turns, key=lambda t: t.start_ns, default=None)
    calls = [node for node in steps.logged.calls if _is_same(span, node)]
    return max(calls, key=lambda node: _shared(span, node), default=None)


def _is_same(span: MappedSpan, step: MappedSpan | Node) -> bool:
    """Whether both may tell one call: by its id or, where none is given, by its name, agent and time."""
    if span.kind is not step.kind or span.kind not in (SpanKind.LLM, SpanKind.TOOL):
        return False
    if span.call_id and step.call_id:
        return span.call_id == step.call_id
    if span.kind is SpanKind.TOOL and span.name != step.name:
        return False
    return span.worker == step.worker and _shared(span, step) > 0


def _covers(span: MappedSpan, turn: Node) -> bool:
    return span.start_ns <= turn.start_ns <= span.end_ns


def _shared(one: MappedSpan, other: MappedSpan | Node) -> int:
    """For how long two calls overlap."""
    return min(one.end_ns, other.end_ns) - max(one.start_ns, other.start_ns)


def _end(turn: Node, span: MappedSpan) -> Event | None:
    """The end of a turn, which only the span knows."""
    if not turn.pending or span.closer is None:
        return None
    turn.pending = False
    closer = span.closer
    return Event(
        kinds.AGENT_END,
        turn.name,
        span=turn.id,
        ts=closer.ts,
        status=closer.status,
        payload=closer.payload,
        src={"half": "close"},
    )


def _rest(step: Node, span: MappedSpan) -> Event | None:
    """What a span knows of a step that is written without it."""
    rest: Json = {}
    for event, wanted in ((span.opener, _OPENING), (span.closer, _CLOSING)):
        if event is not None:
            rest |= {k: event.payload[k] for k in wanted if k in event.payload and k not in step.said}
    if not rest:
        return None
    payload: Json = {"level": "DEBUG", "message": f"{step.name}: its span adds", "of": step.id, **rest}
    src = {"trace": span.trace, "span": span.span}
    return Event(kinds.LOG, step.name, parent=step.id, ts=span.end_ns / 1e9, payload=payload, src=src)


def _as_log(span: MappedSpan, event: Event) -> MappedLog:
    """What a span adds says nothing of how its call went: that is said."""
    return MappedLog(span.i, span.resource, None, None, span.end_ns, event, span.size, session=span.session)
