"""How a run reaches child processes: AGENTRUND_RUN_ID and AGENTRUND_PARENT.

`os.environ` belongs to the whole process, so only what is true for the whole process is set there, by the
run that the process started first: its id once the collector has given it, and `source/` (no span) as the
parent. The span of the moment, which differs by thread and task, is only in `child_env()`. When the run
ends both variables are put back as they were, so that a later child does not wake up a finished run.
"""

from __future__ import annotations

import os

RUN_ID = "AGENTRUND_RUN_ID"
PARENT = "AGENTRUND_PARENT"

# What this process set, and what was there before.
_set: dict[str, str] = {}
_before: dict[str, str | None] = {}


def inherited(variable: str) -> str | None:
    """What the parent process (or the user) put into the environment, not what this process exported."""
    value = os.environ.get(variable) or None
    return _before.get(variable) if variable in _set and value == _set[variable] else value


def export(variable: str, value: str) -> None:
    """Set a variable for child processes."""
    if variable not in _set:
        _before[variable] = os.environ.get(variable)
    _set[variable] = os.environ[variable] = value


def restore() -> None:
    """Put the variables back, unless the application has changed them meanwhile."""
    for variable, value in list(_set.items()):
        if os.environ.get(variable) == value:
            before = _before.get(variable)
            if before is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = before
        _set.pop(variable, None)
        _before.pop(variable, None)
