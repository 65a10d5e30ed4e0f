"""meta.json: what ran where, and its attempts. From the fold's state alone, so it can be written at any time.

Decides key order and which argv values are hidden.
"""

from __future__ import annotations

import re
from typing import Any, Final

from agentrund.formats import document
from agentrund.model.event import Json
from agentrund.model.run_state import Attempt, RunState

REDACTED: Final = "__REDACTED__"
_KNOWN: Final = ("python", "platform", "cwd", "argv", "git", "tags")
_SECRET: Final = re.compile(
    r"api_?key|authorization|cookie|passw|passphrase|secret|token|credential|private_?key", re.IGNORECASE
)
_COUNTER: Final = re.compile(r"tokens$|max_?token|token_?(?:limit|count|budget|size)", re.IGNORECASE)
_NAMED_VALUE: Final = re.compile(r"(-{0,2}[A-Za-z][\w.-]*)\s*([=:])(?!//)(.+)", re.DOTALL)


def encode(state: RunState) -> bytes:
    """The document."""
    metadata = state.metadata
    head: Json = {
        "run_id": state.run_id,
        "session_id": state.session_id,
        "created_at": state.attempts[0].started_iso if state.attempts else None,
        "python": metadata.get("python"),
        "platform": metadata.get("platform"),
        "cwd": metadata.get("cwd"),
        "argv": masked(metadata.get("argv")),
        "git": metadata.get("git", {}),
        "tags": metadata.get("tags", []),
    }
    rest = {key: value for key, value in metadata.items() if key not in _KNOWN and key not in head}
    return document.encode(head | rest | {"attempts": [_attempt(attempt) for attempt in state.attempts]})


def _attempt(attempt: Attempt) -> Json:
    return {
        "n": attempt.n,
        "pid": attempt.pid,
        "started_at": attempt.started_iso,
        "ended_at": attempt.ended_iso,
        "last_seq": attempt.last_seq,
        "outcome": attempt.outcome,
        "cause": attempt.cause,
    }


def masked(argv: Any) -> Any:
    """``argv`` without the values of options that look secret; anything but a list as it is."""
    if not isinstance(argv, list):
        return argv
    shown: list[Any] = []
    hide_next = False
    for arg in argv:
        if not isinstance(arg, str):
            shown.append(arg)
            continue
        if hide_next and not arg.startswith("-"):
            shown.append(REDACTED)
            hide_next = False
            continue
        named = _NAMED_VALUE.fullmatch(arg)
        if named is not None and _is_secret(named[1]):
            shown.append(f"{named[1]}{named[2]}{REDACTED}")
        else:
            shown.append(arg)
        hide_next = named is None and arg.startswith("-") and _is_secret(arg)
    return shown


def _is_secret(option: str) -> bool:
    name = option.lstrip("-").replace("-", "_")
    return _SECRET.search(name) is not None and _COUNTER.search(name) is None
