"""What ``agentrund doctor`` says of one thing it has looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OK: Final = "ok"
NOTE: Final = "note"
"""Worth knowing; nothing is wrong."""
PROBLEM: Final = "problem"


@dataclass(slots=True, frozen=True)
class Check:
    """``what`` was looked at, how it is, in words, and what to do where something is wrong."""

    what: str
    state: str
    message: str
    hint: str = ""
