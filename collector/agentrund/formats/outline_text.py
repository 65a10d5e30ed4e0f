"""How an outline looks: header, attempt lines, rows, footers.

Decides columns and wording. Whatever is foreign has been escaped before it comes here, but for the few
metadata fields of the header.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from agentrund.formats import figures, summary
from agentrund.formats.escape import markdown
from agentrund.formats.outline_rows import AGENT, ERROR, TOOL, Row, Rows
from agentrund.model.event import Json
from agentrund.model.run_state import CRASHED, RUNNING, Attempt, RunState

_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_LABEL: Final = 28
_STATUS: Final = 24
_FIELD_MAX: Final = 200
_TASK_MAX: Final = 1000
_ATTEMPTS_MAX: Final = 200
_FOLDED_NAMES: Final = {AGENT: "agents", TOOL: "tool calls", ERROR: "failures"}


def header(state: RunState, facts: Json) -> list[str]:
    """The first lines: how it went, what it was, what it was for."""
    errors = len(facts["errors"]) + facts["errors_omitted"]
    cost = facts["cost"]["cost_usd"]
    framework = facts["framework"]
    if framework and facts["framework_version"]:
        framework = f"{framework}@{facts['framework_version']}"
    about = (
        f"session {_field(facts['session_id'])}",
        _field(framework),
        _field(facts["model"]),
        f"{facts['attempts']} attempts",
        f"{facts['wall_sec']:.1f}s wall",
    )
    outcome = (
        f"# run {state.run_id} · {facts['status']} · {facts['active_sec']:.1f}s active"
        f" · {'-' if cost is None else figures.money(cost)}"
        f" · {facts['llm_calls']} llm · {facts['tool_calls']} tool · {errors} errors"
    )
    lines = [outcome, " · ".join(about)]
    task = summary.named(state, "task")
    return [*lines, "", f"task: {markdown(task, _TASK_MAX)}"] if task else lines


def _field(value: Any) -> str:
    return markdown(str(value), _FIELD_MAX) if value else "-"


def attempts(state: RunState, rows: Rows) -> Iterator[str]:
    """Each attempt's line with its rows below it; of very many the middle ones are only counted."""
    listed = state.attempts
    omitted = len(listed) - _ATTEMPTS_MAX
    half = _ATTEMPTS_MAX // 2
    for index, attempt in enumerate(listed):
        if omitted > 0 and half <= index < len(listed) - half:
            if index == half:
                yield ""
                yield f"… {omitted} attempts folded (meta.json lists them)"
            continue
        yield ""
        yield _attempt_line(attempt)
        open_word = RUNNING if attempt.outcome == RUNNING else "open"
        for depth, row in rows.walk(attempt.n):
            yield _row(depth, row, open_word)


def _attempt_line(attempt: Attempt) -> str:
    outcome = "crashed (no run.end)" if attempt.outcome == CRASHED else attempt.outcome
    ended = attempt.ended_iso or attempt.last_iso
    return f"---- attempt {attempt.n} · {attempt.started_iso[11:19]} → {ended[11:19]} · {outcome} ----"


def _row(depth: int, row: Row, open_word: str) -> str:
    times = f" {_TIMES}{row.count}" if row.count > 1 else ""
    label = f"{'  ' * depth}{row.symbol} {row.label}{times}"
    duration = "" if row.symbol == ERROR else "-" if row.dur_ms is None else figures.seconds(row.dur_ms)
    cost = "" if row.cost is None else figures.money(row.cost)
    status = open_word if row.status is None else row.status
    if row.llm:
        status += f" · {row.llm} llm · {figures.tokens(row.tokens)}"
    closer = ""
    if row.symbol != AGENT and row.closer is not None:
        status, closer = f"{status:<{_STATUS}}", f" ← {figures.anchor(row.closer)}"
    line = f"{figures.anchor(row.seq)} {label:<{_LABEL}}{duration:>6}  {cost:<9}{status}{closer}"
    return line.rstrip()


def folded(rows: Rows) -> list[str]:
    """The line that says which rows were only counted."""
    if rows.folded_from is None:
        return []
    total = sum(rows.folded.values())
    by_kind = ", ".join(
        f"{count} {_FOLDED_NAMES.get(symbol, 'model calls')}" for symbol, count in rows.folded.items()
    )
    between = f"{figures.anchor(rows.folded_from)} and {figures.anchor(rows.folded_to)}"
    return ["", f"… {total} rows folded between {between}: {by_kind} (agent.logs has every event)"]


def footers(
    failures: list[str], slowest: list[Json], costliest: list[Json], biggest: list[Json]
) -> list[str]:
    """The last lines: where to look first."""
    lines = [""]
    if failures:
        lines.append(f"failures:  {' '.join(failures)}")
    for title, items, show in (
        ("slowest:   ", slowest, figures.seconds),
        ("costliest: ", costliest, figures.money),
    ):
        if items:
            lines.append(title + " · ".join(f"{_who(item)} {show(item['figure'])}" for item in items))
    for item in biggest:
        pointer = figures.pointer(item["figure"], markdown(item["ref"], _FIELD_MAX))
        lines.append(f"biggest:   {_who(item)} {pointer}")
    return lines if len(lines) > 1 else []


def _who(item: Json) -> str:
    return f"{figures.anchor(item['seq'])} {item['name']}"
