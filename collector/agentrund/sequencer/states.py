"""The life of a run as one table: what each input means in each state, and the state after it.

Rules:

- everything that decides between starting, joining, resuming, ending and crashing stands in ``TABLE``;
- the table knows no source, no number and no time: ``sequencer.run`` supplies those.

``docs/reference/run-folder.md`` shows the same table to users.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from agentrund.model import run_state
from agentrund.model.run_state import RunState


class State(Enum):
    """Where a run stands."""

    NEW = "new"
    OPEN = "open"
    ENDED = "ended"
    CRASHED = "crashed"


class Input(Enum):
    """What can happen to a run."""

    ARRIVAL = "a source asks for a place"
    LATE_ARRIVAL = "a source asks for a place of which all is over"
    EVENT = "an event"
    OWNER_END = "run.end from the owner"
    EXIT_OTHERS_LEFT = "a source ends, others live"
    EXIT_LAST_CLEAN = "the last source leaves, all left cleanly"
    EXIT_LAST_UNCLEAN = "the last source ends, not all cleanly"
    FINISH = "the collector ends the run"


class Act(Enum):
    """What the sequencer writes for an input."""

    START = "run.start"
    JOIN = "source.join"
    JOIN_LATE = "source.join, marked late"
    RESUME = "run.resume"
    APPEND = "the event"
    APPEND_LATE = "the event, marked late"
    END = "run.end"
    EXIT = "source.exit"
    EXIT_THEN_END = "source.exit, then run.end"
    NOTHING = "nothing"


TABLE: Final[dict[tuple[State, Input], tuple[Act, State]]] = {
    (State.NEW, Input.ARRIVAL): (Act.START, State.OPEN),
    (State.OPEN, Input.ARRIVAL): (Act.JOIN, State.OPEN),
    (State.ENDED, Input.ARRIVAL): (Act.RESUME, State.OPEN),
    (State.CRASHED, Input.ARRIVAL): (Act.RESUME, State.OPEN),
    (State.OPEN, Input.LATE_ARRIVAL): (Act.JOIN, State.OPEN),
    (State.ENDED, Input.LATE_ARRIVAL): (Act.JOIN_LATE, State.ENDED),
    (State.CRASHED, Input.LATE_ARRIVAL): (Act.JOIN_LATE, State.CRASHED),
    (State.OPEN, Input.EVENT): (Act.APPEND, State.OPEN),
    (State.ENDED, Input.EVENT): (Act.APPEND_LATE, State.ENDED),
    (State.CRASHED, Input.EVENT): (Act.APPEND_LATE, State.CRASHED),
    (State.OPEN, Input.OWNER_END): (Act.END, State.ENDED),
    (State.ENDED, Input.OWNER_END): (Act.APPEND_LATE, State.ENDED),
    (State.CRASHED, Input.OWNER_END): (Act.APPEND_LATE, State.CRASHED),
    (State.OPEN, Input.EXIT_OTHERS_LEFT): (Act.EXIT, State.OPEN),
    (State.OPEN, Input.EXIT_LAST_CLEAN): (Act.EXIT_THEN_END, State.ENDED),
    (State.OPEN, Input.EXIT_LAST_UNCLEAN): (Act.EXIT, State.CRASHED),
    (State.ENDED, Input.EXIT_OTHERS_LEFT): (Act.NOTHING, State.ENDED),
    (State.ENDED, Input.EXIT_LAST_CLEAN): (Act.NOTHING, State.ENDED),
    (State.ENDED, Input.EXIT_LAST_UNCLEAN): (Act.NOTHING, State.ENDED),
    (State.CRASHED, Input.EXIT_OTHERS_LEFT): (Act.NOTHING, State.CRASHED),
    (State.CRASHED, Input.EXIT_LAST_CLEAN): (Act.NOTHING, State.CRASHED),
    (State.CRASHED, Input.EXIT_LAST_UNCLEAN): (Act.NOTHING, State.CRASHED),
    (State.OPEN, Input.FINISH): (Act.END, State.ENDED),
    (State.ENDED, Input.FINISH): (Act.NOTHING, State.ENDED),
    (State.CRASHED, Input.FINISH): (Act.NOTHING, State.CRASHED),
}

_BY_OUTCOME: Final = {
    run_state.RUNNING: State.OPEN,
    run_state.OK: State.ENDED,
    run_state.FAILED: State.ENDED,
    run_state.CRASHED: State.CRASHED,
}


def state_of(run: RunState) -> State:
    """The table's state for what the records say."""
    attempt = run.attempt
    return State.NEW if attempt is None else _BY_OUTCOME[attempt.outcome]


def act_for(run: RunState, given: Input) -> Act:
    """What the table says to write. Raises KeyError where an input cannot happen in that state."""
    return TABLE[state_of(run), given][0]
