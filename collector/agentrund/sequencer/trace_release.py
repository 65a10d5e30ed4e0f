"""A released batch of one trace as events in order: roles, fillings, faults, parents, then time.

Pure; the tree knows the spans released before, so a batch may be any part of a trace.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

from agentrund.model import kinds
from agentrund.model.event import Event, Json
from agentrund.model.otlp import MappedLog, MappedSpan, SpanKind
from agentrund.sequencer.trace_hold import Half, Held, Step, in_time_order
from agentrund.sequencer.trace_tree import Node, Role, TraceTree

_AT_ONCE = 64
COUNTED = 16
"""Of a sender's own numbers the first ones say that it counts anew."""

_OWN = frozenset({"error_type", "error", "text"})
"""What a span says of itself only; another account of it never fills these on a failed call."""


@dataclass(slots=True, frozen=True)
class Fed:
    """One event of a source, and the item it comes from."""

    source: str
    event: Event
    item: MappedSpan | MappedLog | None
    """None for an end that was inferred."""


@dataclass(slots=True)
class _Entry:
    """An event or a pair of them, before it is put in order."""

    source: str
    item: MappedSpan | MappedLog
    events: dict[Half, Event]


def release(tree: TraceTree, batch: list[Held]) -> Generator[tuple[()], None, list[Fed]]:
    """The events of a batch. Spans must have been added to the tree before.

    Each yield is a good moment to look at something else that does not touch the tree.
    """
    nodes: list[Node] = []
    logs: list[tuple[Held, MappedLog]] = []
    for held in batch:
        if isinstance(held.item, MappedLog):
            logs.append((held, held.item))
        elif (node := tree.node(held.item.span)) is not None and node.item is held.item:
            nodes.append(node)
    for few in _by_few(nodes):
        tree.decide(few)
        yield ()
    for node in nodes:
        if node.into is not None and node.into.item is not None and node.item is not None:
            _fill(node.into.item, node.item)
    fed = yield from _ordered(tree, nodes, _fill_from_logs(tree, logs))
    for node in nodes:
        if node.logged and node.item is not None:
            events = (node.item.opener, node.item.closer)
            node.said |= {key for event in events if event is not None for key in event.payload}
        node.item = None
    return fed


def inferred_end(tree: TraceTree, agent: Node) -> Event:
    """The end of an agent of which nobody tells one, when it is sure to be over: at that of its last step.

    An agent whose last step is a model call that failed has failed.
    """
    agent.pending = False
    last = tree.last_of(agent)
    failed = last.kind is SpanKind.LLM and last.failed
    return Event(
        kinds.AGENT_END,
        agent.name,
        span=agent.id,
        ts=last.end_ns / 1e9,
        status="error" if failed else "ok",
        payload={"inferred": True},
        src={"rq": agent.first[0], "i": agent.first[1], "half": "close"},
    )


def _by_few(nodes: list[Node]) -> Iterator[list[Node]]:
    return (nodes[n : n + _AT_ONCE] for n in range(0, len(nodes), _AT_ONCE))


def _ordered(
    tree: TraceTree, nodes: list[Node], logs: list[tuple[Held, MappedLog]]
) -> Generator[tuple[()], None, list[Fed]]:
    steps: dict[Node, Step] = {}
    entries: dict[Step, _Entry] = {}
    for few in _by_few(nodes):
        for node in few:
            if node.item is not None and (entry := _span_entry(tree, node, node.item)) is not None:
                step = Step(node.start_ns, node.end_ns, None, tuple(entry.events))
                if node.role is Role.POINT:
                    step.start_ns = node.end_ns
                steps[node], entries[step] = step, entry
        yield ()
    for node, step in steps.items():
        outer = tree.outer(node)
        step.outer = steps.get(outer) if outer is not None else None
    for node, entry in _errors(tree, nodes):
        around = node if node.role is Role.STEP else tree.outer(node)
        step = Step(node.end_ns, node.end_ns, steps.get(around) if around else None, (Half.POINT,))
        entries[step] = entry
    for held, log in logs:
        around = _place(tree, log)
        step = Step(log.time_ns, log.time_ns, steps.get(around) if around else None, (Half.POINT,))
        entries[step] = _log_entry(tree, held, log, around)
    return [
        Fed(entries[step].source, entries[step].events[half], entries[step].item)
        for step, half in in_time_order(entries)
    ]


# -- spans -----------------------------------------------------------------------------------------


def _span_entry(tree: TraceTree, node: Node, item: MappedSpan) -> _Entry | None:
    if node.role is Role.POINT and item.closer is not None:
        item.closer.src = _src(tree, node, item, "close")
        item.closer.parent = _parent(tree, node)
        return _Entry(node.source, item, {Half.POINT: item.closer})
    if node.role is not Role.STEP:
        return None
    events: dict[Half, Event] = {}
    if not node.opened and item.opener is not None:
        item.opener.parent = _parent(tree, node)
        item.opener.src = _src(tree, node, item, "open")
        events[Half.START] = item.opener
        node.opened = True
    elif item.logged and item.opener and item.closer and node.first != (node.rq, item.i):
        # Its opening is written, from another record: what this one says of it stands at the end.
        item.closer.payload = {**item.opener.payload, **item.closer.payload}
    if item.closer is not None:
        item.closer.src = _src(tree, node, item, "close")
        events[Half.END] = item.closer
    name = _name(tree, node, item)
    for event in events.values():
        event.span, event.name = node.id, name
    return _Entry(node.source, item, events) if events else None


def _name(tree: TraceTree, node: Node, item: MappedSpan) -> str:
    """A model call bears the name of the agent that makes it."""
    if node.kind is not SpanKind.LLM:
        return item.name
    if item.agent is not None:
        return item.agent
    agent = next((n for n in tree.above(node) if n.role is Role.STEP and n.what is SpanKind.AGENT), None)
    return agent.name if agent is not None else item.name


def _parent(tree: TraceTree, node: Node) -> str | None:
    """The enclosing step as the machine knows it; an id that is not known (yet) is passed on as it is."""
    outer = tree.outer(node)
    return tree.missing_above(node) if outer is None else _address(outer, node.source)


def _address(node: Node, source: str) -> str:
    return node.id if node.source == source else f"{node.source}/{node.id}"


def _src(tree: TraceTree, node: Node, item: MappedSpan, half: str | None) -> Json:
    src: Json = {"rq": node.rq, "i": item.i, "trace": item.trace, "span": node.id}
    if half is not None:
        src["half"] = half
    if half == "close" and item.told_by:
        src["logs"] = item.told_by
    if item.logged:
        del src["trace"]
        src |= {k: v for k, v in (("pair", item.pair), ("worker", item.worker)) if v is not None}
        src |= {key: True for key, is_so in (("turn", item.turn), ("past", item.past)) if is_so}
        src |= _counted(item.count, item.end_ns)
    elif item.secondary:
        src["signal"] = "traces"
    if item.parent is not None and (half != "close" or node.role is Role.POINT):
        src["parent"] = item.parent
        if item.remote:
            src["remote"] = True
        elif tree.node(item.parent) is not None and tree.outer(node) is None:
            src["placed"] = True
    return src


def _fill(told: MappedSpan, other: MappedSpan) -> None:
    """Give a span's events what only another account of the same knows."""
    for event, source in ((told.opener, other.opener), (told.closer, other.closer)):
        if event is not None and source is not None:
            _fill_gaps(event.payload, source.payload, told.failed or other.failed)
    told.agent = told.agent or other.agent


def _fill_gaps(payload: Json, more: Json, failed: bool) -> None:  # noqa: FBT001
    for key, value in more.items():
        if failed and key in _OWN:
            continue
        known = payload.get(key)
        if known is None:
            payload[key] = value
        elif isinstance(known, dict) and isinstance(value, dict):
            payload[key] = {**value, **known}


# -- faults ----------------------------------------------------------------------------------------


def _errors(tree: TraceTree, nodes: list[Node]) -> Iterator[tuple[Node, _Entry]]:
    """Faults that no closing event carries and nothing below has told; inner spans speak first."""
    for node in sorted(nodes, key=lambda n: (n.end_ns, -n.start_ns)):
        item = node.item
        if item is None or item.fault is None:
            continue
        if item.error is None:
            if node.role in (Role.STEP, Role.POINT):
                tree.tell(item.fault)
            continue
        if tree.told(item.fault) or _is_told_around(tree, node):
            continue
        tree.tell(item.fault)
        item.error.src = _src(tree, node, item, None)
        item.error.parent = node.id if node.role is Role.STEP else _parent(tree, node)
        yield node, _Entry(node.source, item, {Half.POINT: item.error})


def _is_told_around(tree: TraceTree, node: Node) -> bool:
    """Whether a call around a mere place in the tree tells how it went."""
    if node.role is Role.STEP:
        return False
    return any(n.role is Role.STEP and n.what is not SpanKind.AGENT for n in tree.above(node))


# -- logs ------------------------------------------------------------------------------------------


def _place(tree: TraceTree, log: MappedLog) -> Node | None:
    """The step a log record was written in."""
    node = tree.node(log.span)
    if node is None and log.at_once:
        node = tree.logged.turn_at(log.time_ns)
    if node is None:
        return None
    node = node.into or node
    return node if node.role is Role.STEP else tree.outer(node)


def _fill_from_logs(tree: TraceTree, logs: list[tuple[Held, MappedLog]]) -> list[tuple[Held, MappedLog]]:
    """Put the content records tell into the model calls they belong to; the other records are returned."""
    rest: list[tuple[Held, MappedLog]] = []
    contents: dict[Node, tuple[Json, Json]] = {}
    for held, log in logs:
        answer = None if log.adds is None else _answer_before(tree, log)
        if log.adds is not None and answer is not None and answer.closer is not None:
            _fill_gaps(answer.closer.payload, log.adds, answer.failed)
            answer.told_by.append([held.rq, log.i])
            continue
        node = tree.node(log.span)
        if node is not None:
            node = node.into or node
        if log.fills is None or node is None or node.item is None or node.kind is not SpanKind.LLM:
            rest.append((held, log))
            continue
        for told, more in zip(contents.setdefault(node, ({}, {})), log.fills, strict=True):
            _append(told, more)
        node.item.told_by.append([held.rq, log.i])
    for node, content in contents.items():
        if node.item is not None:
            for event, more in zip((node.item.opener, node.item.closer), content, strict=True):
                if event is not None:
                    _fill_gaps(event.payload, more, node.item.failed)
    return rest


def _answer_before(tree: TraceTree, log: MappedLog) -> MappedSpan | None:
    """The last model call that ended before a record of its answer, where it is not written yet."""
    calls = [
        n
        for n in tree.logged.calls
        if n.kind is SpanKind.LLM and n.worker == log.worker and n.end_ns <= log.time_ns and not n.pending
    ]
    last = max(calls, key=lambda n: n.end_ns, default=None)
    return None if last is None else last.item


def _append(told: Json, more: Json) -> None:
    """One record tells one message: lists and texts grow, messages are counted, the rest is said once."""
    for key, value in more.items():
        known = told.get(key)
        if known is None:
            told[key] = value
        elif isinstance(known, list) and isinstance(value, list):
            told[key] = known + value
        elif key == "text":
            told[key] = f"{known}\n\n{value}"
        elif key == "messages":
            told[key] = known + value


def _counted(count: int | None, ns: int) -> Json:
    """The sender's own number of a record, and its time: by the first ones it is seen to count anew."""
    return {} if count is None or count >= COUNTED else {"count": [count, ns // 1_000_000]}


def _log_entry(tree: TraceTree, held: Held, log: MappedLog, around: Node | None) -> _Entry:
    event = log.event
    event.parent = log.span if around is None else _address(around, held.source)
    event.src = {"rq": held.rq, "i": log.i}
    if log.trace is not None:
        event.src["trace"] = log.trace
    if log.span is not None:
        event.src["span"] = log.span
    event.src |= _counted(log.count, log.time_ns)
    if log.fault is not None and not tree.told(log.fault):
        tree.tell(log.fault)
        event.type = kinds.ERROR
        event.payload = {"error_type": log.fault.type, "error": log.fault.message, **event.payload}
    return _Entry(held.source, log, {Half.POINT: event})
