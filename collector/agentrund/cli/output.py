"""How output looks: colour or not, tables, JSON, progress. Data goes to stdout, all else to stderr."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final, Protocol

import click
import msgspec

from agentrund.formats.escape import json_text, one_line

_UNIT: Final = 1024
_CLEAR_LINE: Final = "\r\x1b[K"
STATUS_COLOR: Final = {"ok": "green", "failed": "red", "crashed": "bright_red", "running": "cyan"}


def use_color(choice: str, stream: IO[Any] | None = None, env: Mapping[str, str] | None = None) -> bool:
    """Whether to colour: as told, else on a terminal that did not decline it."""
    if choice != "auto":
        return choice == "always"
    env = os.environ if env is None else env
    stream = sys.stdout if stream is None else stream
    return stream.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def write(data: bytes) -> None:
    """Bytes to stdout."""
    sys.stdout.buffer.write(data)


def write_json(data: bytes) -> None:
    """JSON to stdout, as it is; to a terminal with escapes for what that would act on."""
    write(json_text(data) if sys.stdout.isatty() else data)


def flush() -> None:
    """Hand over what was written: what a follower waits for must not sit in a buffer."""
    sys.stdout.buffer.flush()


def note(text: str) -> None:
    """A remark for the person, not part of the data."""
    click.echo(one_line(text), err=True)


def json_line(value: Any) -> None:
    """One JSON document on one line. Integers of any size keep their digits."""
    write_json(msgspec.json.encode(value) + b"\n")


def count(number: int, what: str) -> str:
    """``1 source``, ``2 sources``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def size(octets: int) -> str:
    """``512 B``, ``64.0 MiB``, ``78.5 GiB``: the largest unit that leaves at least one."""
    amount, unit = float(octets), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < _UNIT:
            break
        amount, unit = amount / _UNIT, larger
    return f"{octets} B" if unit == "B" else f"{amount:.1f} {unit}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, color: bool) -> None:
    """Columns separated by two blanks; foreign text is made harmless. A status is coloured."""
    lines = [[one_line(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        cells = [cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)]
        if color:
            cells = [_painted(cell, is_header=number == 0) for cell in cells]
        write(("  ".join(cells).rstrip() + "\n").encode())


def _painted(cell: str, *, is_header: bool) -> str:
    if is_header:
        return click.style(cell, bold=True)
    color = STATUS_COLOR.get(cell.rstrip())
    return click.style(cell, fg=color) if color else cell


def _width(text: str) -> int:
    """Columns on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


class Progress(Protocol):
    """How far long work has come."""

    def __call__(self, done: int, total: int, /) -> None:
        """Say it."""


@contextmanager
def progress(label: str) -> Iterator[Progress]:
    """A bar on stderr where that is a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    shown = 0
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def update(done: int, total: int) -> None:
            nonlocal shown
            bar.length = max(total, 1)
            bar.update(done - shown)
            shown = done

        yield update


def clear_bar() -> None:
    """Take a bar's line away, so that what is printed next does not begin behind it."""
    if sys.stderr.isatty():
        sys.stderr.write(_CLEAR_LINE)
        sys.stderr.flush()
