"""Who did what: counts, tokens, cost and time per agent, and per tool within it.

Decides to which agent a record belongs: the one that encloses it; a model call outside any agent goes
under its own name, all else outside under ``-``. An agent that ran twice is summed. Knows no totals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from agentrund.formats.steps import Step
from agentrund.formats.usage import Usage
from agentrund.model import kinds
from agentrund.model.event import Json, Record

NOBODY: Final = "-"
OTHERS: Final = "(other names)"
"""Where names beyond the caps are summed."""
_AGENTS_MAX: Final = 1000
TOOLS_MAX: Final = 1000
_CALL_KINDS: Final = frozenset({kinds.LLM_PROMPT, kinds.LLM_RESPONSE, kinds.LLM_ERROR})
_OWN_KINDS: Final = frozenset({kinds.AGENT_START, kinds.AGENT_END})


@dataclass(slots=True)
class ToolTotals:
    """One tool as one agent used it."""

    calls: int = 0
    errors: int = 0
    sec: float = 0.0
    cost: float | None = None


@dataclass(slots=True)
class AgentTotals:
    """One agent, all its runs together."""

    runs: int = 0
    llm_calls: int = 0
    tool_calls: int = 0
    errors: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    """Sum of the costs of what happened directly within it."""
    rollup: float | None = None
    """Sum of the costs it stated at its own ends."""
    rollup_own: float | None = None
    """The part of ``rollup`` that no agent within it has stated."""
    sec: float = 0.0
    tools: dict[str, ToolTotals] = field(default_factory=dict)

    def add_rollup(self, cost: float | None, own: float | None) -> None:
        """A cost this agent stated at its end, and its own share of it."""
        if cost is not None:
            self.rollup = (self.rollup or 0.0) + cost
        if own is not None:
            self.rollup_own = (self.rollup_own or 0.0) + own


class AgentTable:
    """All agents of a run by name, in order of appearance."""

    def __init__(self) -> None:
        self._agents: dict[str, AgentTotals] = {}
        self._tools = 0
        self._lifecycle = AgentTotals()

    def of(self, record: Record, step: Step | None) -> AgentTotals:
        """The agent a record belongs to; ``step`` is what ``Steps.feed`` returned for it."""
        kind = record.type
        if kind in kinds.LIFECYCLE:
            return self._lifecycle
        if kind in _OWN_KINDS:
            return self.named(step.name if step is not None else record.name)
        own = kind in kinds.OPENERS or kind in kinds.CLOSES
        name = None if step is None else step.owner if own else step.inside
        if name is None and kind in _CALL_KINDS:
            name = step.name if step is not None else record.name
        return self.named(name)

    def named(self, name: str | None) -> AgentTotals:
        """The agent of that name."""
        name = name or NOBODY
        agent = self._agents.get(name)
        if agent is None:
            if len(self._agents) >= _AGENTS_MAX:
                name = OTHERS
            agent = self._agents.setdefault(name, AgentTotals())
        return agent

    def count(self, agent: AgentTotals, record: Record, step: Step | None, cost: float | None) -> None:
        """Count a record of ``agent``."""
        kind, sec = record.type, (record.dur_ms or 0) / 1000
        if kind == kinds.LLM_PROMPT:
            agent.llm_calls += 1
        elif kind == kinds.TOOL_CALL:
            agent.tool_calls += 1
            self._tool(agent, record.name).calls += 1
        elif kind in (kinds.TOOL_RESULT, kinds.TOOL_ERROR):
            tool = self._tool(agent, step.name if step is not None else record.name)
            tool.sec += sec
            tool.errors += 1 if record.payload.get("error_type") else 0
            if cost is not None:
                tool.cost = (tool.cost or 0.0) + cost
        elif kind == kinds.AGENT_START:
            agent.runs += 1
        elif kind == kinds.AGENT_END:
            agent.sec += sec

    def _tool(self, agent: AgentTotals, name: str | None) -> ToolTotals:
        name = name or NOBODY
        tool = agent.tools.get(name)
        if tool is None:
            if self._tools >= TOOLS_MAX:
                name = OTHERS
            else:
                self._tools += 1
            tool = agent.tools.setdefault(name, ToolTotals())
        return tool

    def take_rollups(self) -> None:
        """Let the agents' own shares of what they stated stand for their costs."""
        for agent in self._agents.values():
            agent.cost = agent.rollup_own

    def brief(self) -> Json:
        """``cost.by_agent``."""
        return {
            name: {
                "llm_calls": agent.llm_calls,
                "tool_calls": agent.tool_calls,
                "input_tokens": agent.usage.tokens_in,
                "output_tokens": agent.usage.tokens_out,
                "cost_usd": usd(agent.cost),
            }
            for name, agent in self._agents.items()
            if name != NOBODY or agent.llm_calls or agent.cost is not None
        }

    def full(self) -> Json:
        """``agents``: the same and more, per agent and per tool."""
        return {
            name: {
                "runs": agent.runs,
                "llm_calls": agent.llm_calls,
                "tool_calls": agent.tool_calls,
                "errors": agent.errors,
                "input_tokens": agent.usage.tokens_in,
                "cached_input_tokens": agent.usage.cached,
                "output_tokens": agent.usage.tokens_out,
                "cost_usd": usd(agent.cost),
                "rollup_usd": usd(agent.rollup),
                "sec": round(agent.sec, 3),
                "tools": {tool: _tool_json(totals) for tool, totals in agent.tools.items()},
            }
            for name, agent in self._agents.items()
            if name != NOBODY or agent != AgentTotals()
        }


def _tool_json(tool: ToolTotals) -> Json:
    return {
        "calls": tool.calls,
        "errors": tool.errors,
        "cost_usd": usd(tool.cost),
        "sec": round(tool.sec, 3),
    }


def usd(amount: float | None) -> float | None:
    """Money in a document: micro-dollars are as fine as prices get."""
    return None if amount is None else round(amount, 6)
