"""The spans of one trace: which of them become events, under which parents, and what never came.

Rules (the numbers are those of the mapping page):

- one model call told by nested or neighbouring spans is one call (D3, D4), one tool call told by
  nested spans of its name is one (D5), an agent in an agent of its name is the same (D6); the outer
  account is kept and filled with what only the inner one knows;
- a step that is no (local) root, and a detail, are places in the tree only;
- a fault that was told below is not told again above (D9);
- a tool call made inside a tool call of another process, where no model works that could have asked
  for it, is that call told from its other side (an MCP server's, a script's).

Knows no time and no run. What was released stays known, so that late spans find their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from agentrund.model.event import Json
from agentrund.model.otlp import Fault, MappedSpan, SpanKind
from agentrund.sequencer.faults import Faults
from agentrund.sequencer.logged_steps import LoggedSteps
from agentrund.sequencer.trace_hold import Held

_LEAVES: Final = frozenset({SpanKind.LLM, SpanKind.TOOL, SpanKind.POINT})
_CALLS: Final = frozenset({SpanKind.LLM, SpanKind.TOOL})


class Role(Enum):
    """What a span is in the run, once decided."""

    UNDECIDED = "undecided"
    STEP = "step"
    POINT = "point"
    SILENT = "silent"
    MERGED = "merged"
    """Another span tells it."""


@dataclass(slots=True, eq=False)
class Node:
    """A span's place. ``item`` is kept until its events are released."""

    id: str
    source: str
    parent: str | None
    kind: SpanKind
    name: str
    scope: str
    start_ns: int
    end_ns: int
    entry: bool
    shadow: bool
    call_id: str | None
    rq: int
    first: tuple[int, int]
    """Request and item that it was first told by."""
    item: MappedSpan | None
    role: Role = Role.UNDECIDED
    into: Node | None = None
    pending: bool = False
    """Only its beginning is known."""
    opened: bool = False
    told_below: bool = False
    """An inner account of the same was told before it came."""
    failed: bool = False
    logged: bool = False
    turn: bool = False
    worker: str | None = None
    asked: bool = False
    """Of a pair, the record that opens it is known."""
    said: frozenset[str] = frozenset()
    """Of a logged step, which payload keys are written."""

    @property
    def what(self) -> SpanKind:
        """LLM, TOOL or, for all that can only be an agent, AGENT."""
        return self.kind if self.kind in _CALLS else SpanKind.AGENT


@dataclass(slots=True, frozen=True)
class Root:
    """A root or local root that has ended. ``leaf``: it is itself a call, there is no agent around it."""

    source: str
    start_ns: int
    end_ns: int
    failed: bool
    leaf: bool


class Added(Enum):
    """What became of a span that came in."""

    NEW = "new"
    DUPLICATE = "duplicate"
    FOREIGN = "foreign"
    """Its id, or its being the root, belongs to a span of another process: the trace id was used twice."""


class TraceTree:
    """All spans of one trace."""

    __slots__ = (
        *("_callers", "_calls", "_children", "_entries", "_holes", "_nodes", "_past", "_tops"),
        *("_faults", "logged", "roots"),
    )

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._entries: list[Node] = []
        self._children: dict[str, list[Node]] = {}
        self._calls: dict[tuple[str, bool], list[Node]] = {}
        """Model calls by parent, those of client libraries and those of instrumentations apart."""
        self._callers: frozenset[str] = frozenset()
        """Sources that call models."""
        self._tops: frozenset[str] = frozenset()
        """Sources of spans without a parent."""
        self._holes: dict[str, Node] = {}
        self._past: set[str] | None = None
        self._faults: Faults | None = None
        self.roots: list[Root] = []
        self.logged = LoggedSteps()

    def __len__(self) -> int:
        return len(self._nodes)

    # -- what came --------------------------------------------------------------------------------

    def add(self, held: Held, span: MappedSpan) -> Added:
        """Take a span in. Only a NEW one is to be held and released."""
        if span.logged and self.logged.has_told(span.span):
            return Added.DUPLICATE
        known = self._nodes.get(span.span)
        if known is None and span.pair is not None and (known := self.logged.counterpart(span)) is not None:
            span.span = known.id
        if known is None and self._is_second_root(held.source, span):
            return Added.FOREIGN
        if known is not None:
            if known.source != held.source:
                return Added.FOREIGN
            if not known.pending or span.notice:
                if span.logged and known.item is not None:
                    _take_opening(known.item, span)
                return Added.DUPLICATE
            if span.logged and known.item is not None:
                _take_opening(span, known.item)
            known.pending, known.item, known.rq = False, span, held.rq
            known.end_ns, known.failed = span.end_ns, span.failed
        else:
            self._insert(held, span)
        if not (span.notice or span.logged) and span.entry and span.kind is not SpanKind.DETAIL:
            leaf = span.kind in _LEAVES
            self.roots.append(Root(held.source, span.start_ns, span.end_ns, span.failed, leaf))
        return Added.NEW

    def _is_second_root(self, source: str, span: MappedSpan) -> bool:
        if span.parent is not None:
            return False
        return not self._tops <= {source}

    def _insert(self, held: Held, span: MappedSpan) -> None:
        node = Node(
            span.span,
            held.source,
            span.parent,
            span.kind,
            span.name,
            span.scope,
            span.start_ns,
            span.end_ns,
            span.entry,
            span.shadow,
            span.call_id,
            held.rq,
            (held.rq, span.i),
            span,
            pending=span.notice,
            failed=span.failed,
            logged=span.logged,
            turn=span.turn,
            worker=span.worker,
        )
        if span.logged:
            self.logged.note(node, span)
        self._nodes[node.id] = node
        self._holes.pop(node.id, None)
        if node.entry:
            self._entries.append(node)
            if node.parent is None:
                self._tops |= {node.source}
        if node.kind is SpanKind.LLM:
            self._callers |= {node.source}
            if node.parent is not None:
                self._calls.setdefault((node.parent, node.shadow), []).append(node)
        if node.parent is not None:
            self._children.setdefault(node.parent, []).append(node)
            is_known = (
                node.entry or node.logged or node.parent in self._nodes or node.parent in (self._past or ())
            )
            if not is_known:
                self._holes.setdefault(node.parent, node)

    def restored(self, span: str, payload: Json) -> None:
        """A span put back from a run's records: an event of it is written, with this payload."""
        node = self._nodes[span]
        node.said |= payload.keys()
        node.role = Role.POINT if node.kind is SpanKind.POINT else Role.STEP
        node.opened, node.item = True, None

    def was_there(self, parent: str) -> None:
        """A parent that is not known again since a restart had come before it."""
        self._holes.pop(parent, None)
        self._past = self._past or set()
        self._past.add(parent)

    def is_rooted(self, sources: Iterable[str], *, called: bool = True) -> bool:
        """Whether nothing more is to be waited for by spans of ``sources``.

        The root is there, or each source's local root is. A local root that is a call does not count:
        its caller, in another process, ends later and is still to come, unless it is not ``called`` any more.
        """
        if any(n.parent is None and not n.pending for n in self._entries):
            return True
        rooted = {root.source for root in self.roots if not (root.leaf and called)}
        return rooted.issuperset(sources)

    @property
    def is_bare_call(self) -> bool:
        """Whether all that came lies under roots that are calls themselves."""
        tops = [n for n in self._entries if n.kind is not SpanKind.DETAIL]
        return bool(tops) and not self._holes and all(n.parent is None and n.kind in _LEAVES for n in tops)

    @property
    def is_detail(self) -> bool:
        """Whether nothing came that says anything of an agent's work."""
        return all(n.kind is SpanKind.DETAIL for n in self._nodes.values())

    def holes(self) -> dict[str, str]:
        """Parents that never came, with the source of a child of theirs.

        Below a root of the same process that has ended nothing can be open: what is missing there
        was dropped by its sender.
        """
        return {
            parent: child.source
            for parent, child in self._holes.items()
            if not any(
                not root.leaf
                and root.source == child.source
                and root.start_ns <= child.start_ns <= root.end_ns
                for root in self.roots
            )
        }

    def begun(self) -> list[Node]:
        """Spans of which only the beginning is known and the end would have been told."""
        return [n for n in self._nodes.values() if n.pending and not (n.logged and n.kind is SpanKind.AGENT)]

    def unended(self) -> list[Node]:
        """Agents told by log records that have begun, and of which nobody told an end; inner ones first."""
        agents = [n for n in self._nodes.values() if n.pending and n.logged and n.kind is SpanKind.AGENT]
        return sorted(agents, key=lambda n: len(list(self.above(n))), reverse=True)

    def last_of(self, node: Node) -> Node:
        """What ended last of all that lies below a node; itself where nothing does."""
        last, stack, seen = node, [node], {node.id}
        while stack:
            for child in self._below(stack.pop()):
                if child.id not in seen:
                    seen.add(child.id)
                    stack.append(child)
                    last = max(last, child, key=lambda n: n.end_ns)
        return last

    def _below(self, node: Node) -> list[Node]:
        below = self._children.get(node.id, [])
        if not node.turn:
            return below
        return [*below, *(n for n in self.logged.calls if n.parent is None and self._around(n) is node)]

    def forget(self) -> None:
        """Give up what is known of a trace that has ended long ago; its holes and roots stay."""
        for known in (self._nodes, self._children, self._calls, self._entries):
            known.clear()
        self._callers = self._tops = frozenset()
        self.logged = LoggedSteps()

    # -- faults -----------------------------------------------------------------------------------

    def told(self, fault: Fault) -> bool:
        """Whether the trace has told this fault already."""
        return self._faults is not None and self._faults.told(fault)

    def tell(self, fault: Fault) -> None:
        """Remember a fault as told."""
        self._faults = self._faults or Faults()
        self._faults.tell(fault)

    # -- places -----------------------------------------------------------------------------------

    def node(self, span: str | None) -> Node | None:
        """The node of a span id."""
        return None if span is None else self._nodes.get(span)

    def above(self, node: Node) -> Iterator[Node]:
        """The known spans around ``node``, inside out; a merged one stands for what tells it."""
        seen = {node.id}
        parent = self._around(node)
        while parent is not None and parent.id not in seen:
            seen.add(parent.id)
            if parent.into is not None:
                parent = parent.into
                seen.add(parent.id)
            yield parent
            parent = self._around(parent)

    def _around(self, node: Node) -> Node | None:
        """What a span names as its parent; for a step that names none, the turn it was made in."""
        if node.parent is not None:
            return self._nodes.get(node.parent)
        return self.logged.turn_at(node.start_ns) if node.logged and not node.turn else None

    def outer(self, node: Node) -> Node | None:
        """The step that encloses ``node``."""
        return next((n for n in self.above(node) if n.role is Role.STEP), None)

    def missing_above(self, node: Node) -> str | None:
        """The first parent id around ``node`` that is not known."""
        last = next(reversed(list(self.above(node))), node)
        return last.parent if last.parent is not None and last.parent not in self._nodes else None

    # -- roles ------------------------------------------------------------------------------------

    def decide(self, nodes: list[Node]) -> None:
        """Give every node its role, outer ones first."""
        for node in nodes:
            chain: dict[str, Node] = {}
            at: Node | None = node
            while at is not None and at.role is Role.UNDECIDED and at.id not in chain:
                chain[at.id] = at
                at = self._around(at)
            for inner in reversed(chain.values()):
                self._decide(inner)

    def _decide(self, node: Node) -> None:
        if node.role is not Role.UNDECIDED:
            return
        if node.logged:
            node.role = Role.STEP
        elif node.kind is SpanKind.POINT:
            node.role = Role.POINT
        elif node.kind is SpanKind.DETAIL or (node.kind not in _CALLS and not _may_be_agent(node)):
            node.role = Role.SILENT
        elif (twin := self._twin(node)) is not None:
            node.role, node.into = Role.MERGED, twin
        elif node.kind is SpanKind.TOOL and self._is_other_side(node):
            node.role = Role.SILENT
        else:
            node.told_below = self._told_below(node)
            node.role = Role.SILENT if node.told_below else Role.STEP

    def _is_other_side(self, node: Node) -> bool:
        """Whether a tool call is another process's account of a tool call around it."""
        return self._is_called(node) and node.source not in self._callers

    def awaits_caller(self, span: str) -> bool:
        """Whether a span may turn out to be told by another process's tool call, which is not known yet."""
        node = self._nodes.get(span)
        if node is None or node.kind is not SpanKind.TOOL or node.role is not Role.UNDECIDED:
            return False
        if node.source in self._callers or self._is_called(node) or self.missing_above(node) is None:
            return False
        around = (node, *self.above(node))
        return any(n.source == node.source and n.entry and n.parent is not None for n in around)

    def _is_called(self, node: Node) -> bool:
        return any(n.kind is SpanKind.TOOL and n.source != node.source for n in self.above(node))

    def _twin(self, node: Node) -> Node | None:
        """The span that already tells what ``node`` tells."""
        outer = self.outer(node)
        if outer is not None and _same(outer, node):
            return outer
        if node.kind is SpanKind.LLM and node.parent is not None:
            return self._neighbour(node, self._calls.get((node.parent, not node.shadow), ()))
        return None

    def _neighbour(self, node: Node, others: Sequence[Node]) -> Node | None:
        """A client library's own account and an instrumentation's are one; the latter's is kept."""
        for other in others:
            if not _overlap(node, other):
                continue
            if node.shadow and other.item is not None:
                self._decide(other)
            if node.shadow or (other.role is Role.STEP and other.opened):
                return other.into or other
        return None

    def _told_below(self, node: Node) -> bool:
        """Whether an inner account of the same was released before the outer one came."""
        stack = list(self._children.get(node.id, ()))
        seen = {node.id}
        while stack:
            inner = stack.pop()
            if inner.id in seen:
                continue
            seen.add(inner.id)
            # One that is silent for what lies below it need not be looked below again.
            if (inner.told_below or (inner.role is Role.STEP and inner.opened)) and _same(node, inner):
                return True
            if inner.role is not Role.STEP:
                stack += self._children.get(inner.id, ())
        return False


def _may_be_agent(node: Node) -> bool:
    return node.kind is SpanKind.AGENT or node.entry


def _same(outer: Node, inner: Node) -> bool:
    if outer.what is not inner.what:
        return False
    if outer.call_id and inner.call_id and outer.call_id != inner.call_id:
        return False
    return outer.what is SpanKind.LLM or outer.name == inner.name


def _take_opening(span: MappedSpan, notice: MappedSpan) -> None:
    """Of a step opened and closed by two records that are written together: what the first one said."""
    if span.opener is None or notice.opener is None:
        return
    span.opener.payload = {**notice.opener.payload, **span.opener.payload}
    if notice.start_ns < span.start_ns or span.start_ns == span.end_ns:
        span.start_ns, span.opener.ts = notice.start_ns, notice.opener.ts


def _overlap(one: Node, other: Node) -> bool:
    return one.start_ns <= other.end_ns and other.start_ns <= one.end_ns
