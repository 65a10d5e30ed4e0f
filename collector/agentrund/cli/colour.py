"""Colours for agent.logs on a terminal. Escape codes are added around text, the text is never changed."""

from __future__ import annotations

import re
from typing import Final

_EVENT: Final = re.compile(rb"(#\d{4,}) (\S+) ( *\S+)  (\S+)(.*)", re.DOTALL)
_RESET: Final = b"\x1b[0m"
_DIM: Final = b"\x1b[2m"
_BOLD: Final = b"\x1b[1m"
_RED: Final = b"\x1b[31m"
_DEAD: Final = b"\x1b[1;31m"

_BY_AREA: Final = {
    b"run": b"\x1b[1m",
    b"source": b"\x1b[2m",
    b"agent": b"\x1b[32m",
    b"llm": b"\x1b[35m",
    b"tool": b"\x1b[36m",
    b"error": _RED,
    b"log": b"\x1b[34m",
}


def paint(data: bytes) -> bytes:
    """Whole lines of agent.logs with colours."""
    return b"".join(map(_line, data.splitlines(keepends=True)))


def _line(line: bytes) -> bytes:
    match = _EVENT.match(line)
    if match is not None:
        anchor, clock, delta, kind, rest = match.groups()
        color = _RED if kind.endswith(b".error") else _BY_AREA.get(kind.split(b".")[0], b"")
        return b"%b%b%b %b%b%b %b  %b%b%b%b" % (
            _BOLD, anchor, _RESET, _DIM, clock, _RESET, delta, color, kind, _RESET if color else b"", rest
        )  # fmt: skip
    if line.startswith(b"==== attempt"):
        return _whole(_BOLD, line)
    if line.startswith((b"---- attempt", b"     open: ")):
        return _whole(_DEAD, line)
    if line.startswith(("┌─".encode(), "└─".encode())):
        return _whole(_DIM, line)
    return line


def _whole(color: bytes, line: bytes) -> bytes:
    return color + line.rstrip(b"\n") + _RESET + b"\n"
