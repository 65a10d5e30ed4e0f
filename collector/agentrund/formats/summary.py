"""What every derived file says of a run as a whole, told from the fold's state.

Decides status, times and names. The status is the newest attempt's outcome; times are the records' own.
"""

from __future__ import annotations

from agentrund.model.event import Json
from agentrund.model.run_state import CRASHED, RUNNING, RunState, said


def status(state: RunState) -> str:
    """``ok``, ``failed``, ``crashed`` or ``running``."""
    return state.attempts[-1].outcome if state.attempts else RUNNING


def named(state: RunState, key: str) -> str | None:
    """A piece of the run's metadata as text."""
    value = state.metadata.get(key)
    return None if value is None else said(value)


def active_sec(state: RunState) -> float:
    """Seconds in which an attempt was running."""
    return round(sum(attempt.active_sec for attempt in state.attempts), 2)


def summary(state: RunState) -> Json:
    """The beginning of analytics.json."""
    first = state.attempts[0] if state.attempts else None
    last = state.attempts[-1] if state.attempts else None
    started = None if first is None else first.started_ts
    ended = None if last is None else last.ended_ts if last.ended_ts is not None else last.last_ts
    return {
        "run_id": state.run_id,
        "session_id": state.session_id,
        "status": status(state),
        "framework": named(state, "framework"),
        "framework_version": named(state, "framework_version"),
        "model": named(state, "model"),
        "started_at": None if first is None else first.started_iso,
        "ended_at": None if last is None else last.ended_iso or last.last_iso,
        "wall_sec": 0.0 if started is None or ended is None else round(max(0.0, ended - started), 2),
        "active_sec": active_sec(state),
        "attempts": len(state.attempts),
    }


def last_error(state: RunState) -> str | None:
    """What went wrong last: of a crashed run the cause of its death."""
    attempt = state.attempt
    if attempt is not None and attempt.outcome == CRASHED:
        return attempt.cause
    return state.totals.last_error
