"""The one place where the client's own faults end: counted, told once on stderr, never raised into the agent.

`guarded` catches `Exception` only. What else may fly through client code (KeyboardInterrupt, a SystemExit
raised by the application's signal handler) belongs to the application and passes.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

_faults: list[str] = []
_told: set[str] = set()
# Only the first faults are kept as text: a fault in a loop must not grow the agent's memory.
_KEPT = 20


def guarded(fallback: Callable[[], R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a public function harmless: on an internal fault it returns `fallback()`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception as fault:  # noqa: BLE001 - the client never raises into the agent
                note_fault(fault, function.__qualname__)
                return fallback()

        return call

    return decorate


def nothing() -> None:
    """The fallback of functions that return nothing."""


def note_fault(fault: BaseException, place: str) -> None:
    """Count an internal fault; tell the first on stderr, with AGENTRUND_DEBUG=1 each with its traceback."""
    try:
        if len(_faults) < _KEPT:
            _faults.append(f"{place}: {type(fault).__name__}")
        if os.environ.get("AGENTRUND_DEBUG") == "1":
            _tell(traceback_of(fault))
        else:
            notice("fault", f"internal fault in {place} ({type(fault).__name__}); AGENTRUND_DEBUG=1 shows it")
    except Exception:  # noqa: BLE001, S110 - a broken stderr is no reason to disturb the agent
        pass


def notice(kind: str, text: str) -> None:
    """Tell the user something once per kind and process, on stderr; the agent goes on unaffected."""
    if kind not in _told:
        _told.add(kind)
        _tell(f"agentrund: {text}\n")


def faults() -> list[str]:
    """The first internal faults of this process, as `place: ErrorType`."""
    return list(_faults)


def _tell(text: str) -> None:
    try:
        if sys.stderr is not None:
            sys.stderr.write(text)
    except Exception:  # noqa: BLE001, S110 - stderr may be closed or a broken pipe
        pass


def traceback_of(fault: BaseException) -> str:
    """The traceback as Python prints it."""
    if isinstance(fault, KeyboardInterrupt) and "traceback" not in sys.modules:
        # Its import evaluates source text, after which Python forgets that Ctrl-C ended the program, and
        # the shell sees exit code 1 instead of SIGINT.
        return type(fault).__name__
    import traceback  # noqa: PLC0415 - heavy, and only wanted when something broke

    return "".join(traceback.format_exception(fault))
