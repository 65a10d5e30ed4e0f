"""One OTLP run as far as its end is concerned: who takes part, what is open, how it went.

Decides what counts as open: a parent that never came, a beginning without an end, a tool call that
the last model answer asked for and nobody made. Gives no number and feeds no event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from agentrund.model import kinds
from agentrund.model.event import Json
from agentrund.model.otlp import MappedSpan, Requested
from agentrund.model.run_state import FAILED, OK
from agentrund.sequencer.otlp_commands import BY_TRACE, RunKey
from agentrund.sequencer.trace_release import Fed
from agentrund.sequencer.trace_tree import Root, TraceTree

_LISTED: Final = 100
"""Open steps listed per source; a crash of a thousand spans is told by fewer."""


@dataclass(slots=True)
class _Asked:
    """The tool calls of the last model answer of a source that were not made yet."""

    trace: str
    span: str
    calls: list[Requested]


@dataclass(slots=True, eq=False)
class OtlpRun:
    """A run that is, or was, open. ``members`` are the sources of its attempt, True while they live."""

    key: RunKey
    session: str | None = None
    members: dict[str, bool] = field(default_factory=dict)
    trees: dict[str, TraceTree] = field(default_factory=dict)
    last_arrival: float = 0.0
    last_ts: float = 0.0
    ended: bool = False
    died_at: float | None = None
    _asked: dict[str, _Asked] = field(default_factory=dict)
    _call_failed: bool = False
    _forgotten: list[Root] = field(default_factory=list)
    """The last root, and the last that is no call, of traces that are forgotten."""

    def living(self) -> list[str]:
        """Sources that have not left."""
        return [source for source, lives in self.members.items() if lives]

    def begin(self, session: str | None) -> None:
        """A new attempt: nothing of the one before counts."""
        self.session = self.session or session
        self.members, self.trees, self._asked, self._forgotten = {}, {}, {}, []
        self.ended, self.died_at, self._call_failed = False, None, False

    def note(self, fed: Fed) -> None:
        """Follow an event that is being fed."""
        event = fed.event
        if event.ts is not None:
            self.last_ts = max(self.last_ts, event.ts)
        if not isinstance(fed.item, MappedSpan):
            return
        if event.type == kinds.LLM_PROMPT:
            self._asked.pop(fed.source, None)
        elif event.type in (kinds.LLM_RESPONSE, kinds.LLM_ERROR):
            self._call_failed = event.type == kinds.LLM_ERROR
            if fed.item.requested:
                calls = list(fed.item.requested)
                self._asked[fed.source] = _Asked(fed.item.trace, fed.item.span, calls)
        elif event.type == kinds.TOOL_CALL:
            self._call_failed = False
            self._made(fed.item)
        elif event.type == kinds.AGENT_END and fed.item.entry:
            # What its model asked for last was the answer itself, or was not to be done.
            self._asked = {s: a for s, a in self._asked.items() if a.trace != fed.item.trace}

    def _made(self, tool: MappedSpan) -> None:
        for asked in self._asked.values():
            for call in asked.calls:
                if call.id == tool.call_id if call.id and tool.call_id else call.name == tool.name:
                    asked.calls.remove(call)
                    return

    def forget(self, trace: str) -> None:
        """A trace of it is over: only how its root ended may still matter."""
        tree = self.trees.pop(trace, None)
        if tree is None:
            return
        roots = sorted([*self._forgotten, *tree.roots], key=lambda root: root.end_ns)
        self._forgotten = [*[r for r in roots if not r.leaf][-1:], *roots[-1:]]

    # -- what is open -----------------------------------------------------------------------------

    def lacks(self, source: str | None = None) -> list[Json]:
        """Steps that were begun and never ended, and have no opening event: of one source, or of all."""
        return [
            {"span": parent, "missing_parent": True}
            for tree in self.trees.values()
            for parent, owner in tree.holes().items()
            if source in (None, owner)
        ][:_LISTED]

    def asked(self, source: str | None = None) -> list[Json]:
        """Tool calls a model asked for that nobody made."""
        return [
            {
                "seq": None,
                "type": kinds.TOOL_CALL,
                "name": call.name,
                "requested_in": {"source": owner, "span": asked.span},
            }
            for owner, asked in self._asked.items()
            if source in (None, owner)
            for call in asked.calls
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
        return FAILED if self._call_failed and self.key.by != BY_TRACE else OK
