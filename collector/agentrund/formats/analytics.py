"""analytics.json: what a run did, took and cost. One streaming pass.

Decides counts, sums and whose they are. Memory is bounded by distinct names, open steps and fixed caps,
never by the number of records. Must not know prices: ``computed_usd`` is null.
"""

from __future__ import annotations

from typing import Final

from agentrund.formats.agents import NOBODY, OTHERS, TOOLS_MAX, AgentTable, usd
from agentrund.formats.dropped import Dropped
from agentrund.formats.ranking import Top
from agentrund.formats.rollups import RollUps
from agentrund.formats.steps import Step, Steps
from agentrund.formats.summary import summary
from agentrund.formats.usage import Usage, cost_of, usage_of
from agentrund.model import kinds
from agentrund.model.event import Json, Record
from agentrund.model.run_state import RunState, said

ERRORS_MAX: Final = 10_000
OPEN_MAX: Final = 10_000
_SLOWEST: Final = 10
_CLOSERS_OF_CALLS: Final = (kinds.LLM_RESPONSE, kinds.LLM_ERROR)


class AnalyticsFold:
    """Takes every record once, in order, right after it was applied to the run's state."""

    def __init__(self) -> None:
        self._tools: dict[str, int] = {}
        self._errors: list[Json] = []
        self._errors_omitted = 0
        self._agents = AgentTable()
        self._rollups = RollUps()
        self._usage = Usage()
        self._reported: float | None = None
        self._unpriced: set[str] = set()
        self._slowest = Top(_SLOWEST)
        self._last: dict[int, tuple[int, float]] = {}
        self._gap: Json | None = None
        self._dropped = Dropped()

    def feed(self, record: Record, step: Step | None) -> None:
        """Count ``record`` in; ``step`` is what ``Steps.feed`` returned for it."""
        kind, payload = record.type, record.payload
        agent = self._agents.of(record, step)
        if error_type := payload.get("error_type"):
            self._error(record, said(error_type))
            agent.errors += 1
        cost = cost_of(payload)
        if cost is not None and kind not in (kinds.AGENT_END, kinds.RUN_END):
            self._reported = (self._reported or 0.0) + cost
            agent.cost = (agent.cost or 0.0) + cost
        self._agents.count(agent, record, step, cost)
        if kind == kinds.TOOL_CALL:
            name = record.name or NOBODY
            if name not in self._tools and len(self._tools) >= TOOLS_MAX:
                name = OTHERS
            self._tools[name] = self._tools.get(name, 0) + 1
        elif kind in _CLOSERS_OF_CALLS:
            self._call(record, step, cost, agent.usage)
        elif kind == kinds.AGENT_END:
            agent.add_rollup(cost, self._rollups.close(step, cost))
        self._dropped.feed(record)
        if record.dur_ms and record.dur_ms > 0 and not kind.startswith("run."):
            opener = step if step is not None and kind in kinds.CLOSES else None
            self._slowest.offer(record.dur_ms, _slow(record, opener))
        self._silence(record)

    def result(self, state: RunState, steps: Steps) -> Json:
        """The document, after the last record."""
        for step in steps.open.values():
            if step.type == kinds.LLM_PROMPT:
                # A call that never ended has read its prompt all the same.
                used = usage_of(step.told, {})
                self._usage.add(used)
                self._agents.named(step.owner or step.name).usage.add(used)
        return summary(state) | {
            "llm_calls": state.totals.llm_calls,
            "tool_calls": state.totals.tool_calls,
            "tool_calls_by_name": self._tools,
            "errors": self._errors,
            "errors_omitted": self._errors_omitted,
            "cost": self._cost(),
            "agents": self._agents.full(),
            "slowest": self._slowest.items(),
            "longest_gap": self._gap,
            **_open_at_end(state, steps),
            "dropped": self._dropped.as_json(),
        }

    def _error(self, record: Record, error_type: str) -> None:
        if len(self._errors) >= ERRORS_MAX:
            self._errors_omitted += 1
            return
        self._errors.append(
            {
                "seq": record.seq,
                "type": error_type,
                "name": record.name,
                "message": said(record.payload.get("error")),
            }
        )

    def _call(self, record: Record, step: Step | None, cost: float | None, of_agent: Usage) -> None:
        opening = step.told if step is not None else {}
        used = usage_of(opening, record.payload)
        self._usage.add(used)
        of_agent.add(used)
        if cost is None and (used.tokens_in or used.tokens_out):
            model = record.payload.get("model") or opening.get("model")
            self._unpriced.add(said(model) if model else "-")

    def _silence(self, record: Record) -> None:
        if record.late:
            return
        last = self._last.get(record.attempt)
        self._last[record.attempt] = (record.seq, record.ts)
        if last is not None:
            sec = round(record.ts - last[1], 3)
            if sec > 0 and (self._gap is None or sec > self._gap["sec"]):
                self._gap = {"after_seq": last[0], "before_seq": record.seq, "sec": sec}

    def _cost(self) -> Json:
        total, from_rollup = self._reported, False
        if total is None:
            total = self._rollups.total()
            from_rollup = total is not None
        if from_rollup:
            self._agents.take_rollups()
        return {
            "input_tokens": self._usage.tokens_in,
            "output_tokens": self._usage.tokens_out,
            "cost_usd": usd(total),
            "by_agent": self._agents.brief(),
            "cached_input_tokens": self._usage.cached,
            "reported_usd": usd(self._reported),
            "computed_usd": None,
            "from_rollup": from_rollup,
            "unpriced": sorted(self._unpriced),
        }


def _slow(record: Record, opener: Step | None) -> Json:
    seq, kind, name = (
        (record.seq, record.type, record.name) if opener is None else (opener.seq, opener.type, opener.name)
    )
    return {"seq": seq, "type": kind, "name": name, "sec": (record.dur_ms or 0) / 1000}


def _open_at_end(state: RunState, steps: Steps) -> Json:
    """Every step left open: those with a record, then those of which only a death's record tells."""
    ends = {a.n: a.ended_ts if a.ended_ts is not None else a.last_ts for a in state.attempts}
    rows: list[Json] = [
        {
            "seq": step.seq,
            "type": step.type,
            "name": step.name,
            "attempt": step.attempt,
            "age": round(max(0.0, ends.get(step.attempt, step.ts) - step.ts), 3),
        }
        for step in steps.open.values()
    ]
    rows += [
        {**step, "attempt": attempt.n}
        for attempt in state.attempts
        for death in attempt.deaths
        for step in death.open
        if step.get("seq") is None
    ]
    return {"open_at_end": rows[:OPEN_MAX], "open_at_end_omitted": max(0, len(rows) - OPEN_MAX)}
