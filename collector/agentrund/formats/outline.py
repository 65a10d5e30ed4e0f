"""outline.md: what happened, on a page or two. One streaming pass, at most 2,000 rows.

Decides which records make a row: agents, tools, failures, and model calls outside any agent; a model
call within an agent is counted in the agent's row. All foreign text is escaped for Markdown.
Memory is bounded by the rows and the open steps.
"""

from __future__ import annotations

from typing import Final

from agentrund.formats import figures
from agentrund.formats.escape import markdown
from agentrund.formats.outline_rows import AGENT, CALL, ERROR, TOOL, Row, Rows
from agentrund.formats.outline_text import attempts, folded, footers, header
from agentrund.formats.ranking import Top
from agentrund.formats.spilled import pointers
from agentrund.formats.steps import Step, Steps
from agentrund.formats.usage import cost_of, usage_of
from agentrund.model import kinds
from agentrund.model.event import Json, Record
from agentrund.model.run_state import RunState, said

_NAME_MAX: Final = 80
_ERROR_MAX: Final = 120
_FAILURES_MAX: Final = 50
_RANKED: Final = 3


class OutlineFold:
    """Takes every record once, in order, right after it was applied to the run's state."""

    def __init__(self) -> None:
        self._rows = Rows()
        self._row_of: dict[int, Row] = {}
        self._failures: list[int] = []
        self._failed = 0
        self._slowest, self._costliest, self._biggest = Top(_RANKED), Top(_RANKED), Top(1)

    def feed(self, record: Record, step: Step | None) -> None:
        """Take ``record`` in; ``step`` is what ``Steps.feed`` returned for it."""
        kind = record.type
        if kind in kinds.OPENERS and step is not None:
            self._open(record, step)
        elif kind in (kinds.LLM_RESPONSE, kinds.LLM_ERROR):
            self._end_call(record, step)
        elif kind in kinds.CLOSES:
            self._close(record, step)
        elif kind == kinds.SOURCE_EXIT and record.status != "ok":
            self._failure(record, None, said(record.payload.get("cause")))
        elif kind != kinds.RUN_END and record.payload.get("error_type"):
            self._failure(record, step, _message(record.payload))
        self._rank(record, step)

    def result(self, state: RunState, steps: Steps, facts: Json) -> bytes:
        """The document, after the last record, once; ``facts`` is the run's analytics."""
        for step in steps.open.values():
            if step.type == kinds.LLM_PROMPT and step.seq not in self._row_of:
                self._add(Row(step.seq, CALL, _name(step.name), self._around(step.parent, step.attempt)))
        lines = [*header(state, facts), *attempts(state, self._rows), *folded(self._rows)]
        more = self._failed - len(self._failures)
        lines += footers(
            [figures.anchor(seq) for seq in self._failures] + ([f"… +{more}"] if more else []),
            self._slowest.items(),
            self._costliest.items(),
            self._biggest.items(),
        )
        self._rows.dismantle()
        return ("\n".join(lines) + "\n").encode()

    def _open(self, record: Record, step: Step) -> None:
        if step.type == kinds.LLM_PROMPT and self._row_around(step.parent) is not None:
            return
        symbol = {kinds.AGENT_START: AGENT, kinds.TOOL_CALL: TOOL}.get(step.type, CALL)
        self._add(Row(record.seq, symbol, _name(record.name), self._around(step.parent, record.attempt)))

    def _add(self, row: Row) -> None:
        if self._rows.add(row):
            self._row_of[row.seq] = row

    def _close(self, record: Record, step: Step | None) -> None:
        row = self._row_of.pop(step.seq, None) if step is not None else None
        if row is None:
            # Its opener is not known: the end is all there is to show.
            if step is None:
                symbol = AGENT if record.type == kinds.AGENT_END else TOOL
                row = Row(record.seq, symbol, _name(record.name), self._rows.root(record.attempt))
                self._finish(row, record)
                self._rows.add(row)
            return
        self._finish(row, record)
        self._rows.done(row)

    @staticmethod
    def _finish(row: Row, record: Record) -> None:
        error_type = record.payload.get("error_type")
        failed = f"{ERROR} {markdown(said(error_type), _NAME_MAX)}" if error_type else None
        row.status = failed or markdown(record.status or "ok", _NAME_MAX)
        row.closer = record.seq
        row.dur_ms = record.dur_ms
        cost = cost_of(record.payload)
        row.cost = row.cost if cost is None else cost

    def _end_call(self, record: Record, step: Step | None) -> None:
        own = self._row_of.pop(step.seq, None) if step is not None else None
        row = own or self._row_around(step.parent if step is not None else None)
        used = usage_of(step.told if step is not None else {}, record.payload)
        if row is not None:
            row.llm += 1
            row.tokens += used.tokens_in + used.tokens_out
            cost = cost_of(record.payload)
            if cost is not None and row.status is None:
                row.cost = (row.cost or 0.0) + cost
        if own is not None:
            self._finish(own, record)
            self._rows.done(own)
        elif record.type == kinds.LLM_ERROR or record.payload.get("error_type"):
            self._failure(record, step.parent if step is not None else None, _message(record.payload))
        elif step is None:
            row = Row(record.seq, CALL, _name(record.name), self._rows.root(record.attempt))
            self._finish(row, record)
            self._rows.add(row)

    def _failure(self, record: Record, around: Step | None, message: str) -> None:
        row = Row(record.seq, ERROR, markdown(message, _ERROR_MAX), self._around(around, record.attempt))
        row.status, row.closer = "", record.seq
        self._rows.add(row)

    def _row_around(self, step: Step | None) -> Row | None:
        """The row of the nearest agent around, or where there is none of the nearest step."""
        nearest = None
        while step is not None:
            row = self._row_of.get(step.seq)
            if row is not None and step.type == kinds.AGENT_START:
                return row
            nearest = nearest or row
            step = step.parent
        return nearest

    def _around(self, step: Step | None, attempt: int) -> Row:
        while step is not None:
            row = self._row_of.get(step.seq)
            if row is not None:
                return row
            step = step.parent
        return self._rows.root(attempt)

    def _rank(self, record: Record, step: Step | None) -> None:
        kind, payload = record.type, record.payload
        name = _name(record.name or kind)
        if payload.get("error_type"):
            self._failed += 1
            if len(self._failures) < _FAILURES_MAX:
                self._failures.append(record.seq)
        lifecycle = kind in kinds.LIFECYCLE
        if record.dur_ms and not lifecycle:
            seq = step.seq if step is not None and kind in kinds.CLOSES else record.seq
            self._slowest.offer(record.dur_ms, {"seq": seq, "name": name, "figure": record.dur_ms})
        cost = cost_of(payload)
        if cost and not lifecycle and kind != kinds.AGENT_END:
            self._costliest.offer(cost, {"seq": record.seq, "name": name, "figure": cost})
        for octets, ref in pointers(payload):
            self._biggest.offer(octets, {"seq": record.seq, "name": name, "figure": octets, "ref": ref})


def _name(name: str | None) -> str:
    return markdown(name or "-", _NAME_MAX)


def _message(payload: Json) -> str:
    return f"{said(payload.get('error_type') or 'Error')}: {said(payload.get('error'))}"
