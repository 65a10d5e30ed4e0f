"""agent.logs: the transcript people read. One line an event, frames for long text, banners for attempts.

Decides columns, frames, banners and the crash marker, and reads them back. Nothing a payload holds
can begin a line that looks like one of these (see ``escape``), so reading back is exact.
Must not know the file: the caller appends what is rendered, in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from agentrund.formats import escape, figures
from agentrund.formats.detail import describe
from agentrund.formats.trace_jsonl import millis
from agentrund.model.event import Json, Record
from agentrund.model.run_state import Attempt, Change, RunState

FRAME_WIDTH: Final = 35
_DASH: Final = "─".encode()
_HEAD: Final = "┌".encode() + _DASH * (FRAME_WIDTH - 1) + b"\n"
_SHORT: Final = 200
"""Characters up to which looking at each is cheaper than looking for a backslash in the payload's bytes."""
_FOOT: Final = "\n└─ ".encode()
_LINE: Final = re.compile(rb"#(\d{4,}) |(====|----) attempt (\d+) ")


class LogRenderer:
    """Renders the records of one run, each right after it was applied to the run's state."""

    def __init__(self) -> None:
        self._last_ms: dict[int, int] = {}

    def render(self, record: Record, change: str | None, state: RunState) -> bytes:
        """The bytes that ``record`` adds; ``change`` is what ``state.apply(record)`` returned."""
        now, attempt, raw = millis(record.ts), record.attempt, record.raw
        delta = now - self._last_ms.get(attempt, now)
        self._last_ms[attempt] = now
        detail, text, ref = describe(record)
        if not (detail.isprintable() if len(detail) < _SHORT else _is_plain(raw, record.status)):
            detail = escape.one_line(detail)
        anchor = figures.anchor(record.seq)
        name = record.name
        # What is kept for all runs must stay small, and a sender may name a thing with a megabyte.
        columns = _kept_columns if name is None or len(name) < _SHORT else _columns
        line = f"{anchor} {record.iso[11:23]} {_delta(delta)}  {columns(record.type, name)}{detail}"
        event = line.rstrip(" ").encode() + b"\n"
        if text is not None:
            event += _frame(anchor, text, ref)
        if change is None:
            return event
        return _with_banners(event, record, change, state)


def _with_banners(event: bytes, record: Record, change: str, state: RunState) -> bytes:
    if change == Change.OPENED:
        return _opening(_attempt(record, state), first=record.seq == 1) + event
    if change == Change.CRASHED:
        return event + _crash_marker(_attempt(record, state))
    return event


def _frame(anchor: str, text: str, ref: str | None) -> bytes:
    data = text.encode()
    if ref is None:
        head, tail = _HEAD, _end(len(anchor), len(data))
    else:
        head, tail = _head(text), _truncated(len(anchor), ref)
    return b"".join((head, escape.encoded_block(text, data), _FOOT, anchor.encode(), tail))


def _is_plain(raw: bytes | None, status: str | None) -> bool:
    """Whether payload and status hold no control character: JSON must escape C0, the rest is not ASCII."""
    if status is not None and not status.isprintable():
        return False
    return raw is not None and b"\\" not in raw and raw.isascii() and b"\x7f" not in raw


# Types, names, deltas and sizes repeat, so these are looked up far more often than made.


def _columns(kind: str, name: str | None) -> str:
    return f"{escape.one_line(kind):<13} {escape.one_line(name or '-'):<12} "


_kept_columns: Final = lru_cache(maxsize=4096)(_columns)


@lru_cache(maxsize=4096)
def _delta(delta_ms: int) -> str:
    # A clock that stepped back, or an event that came out of order, must not look like time undone.
    return f"+{figures.seconds(max(delta_ms, 0))}".rjust(6)


@lru_cache(maxsize=4096)
def _end(anchor_width: int, octets: int) -> bytes:
    return _foot(anchor_width, f" end · {figures.size(octets)} ")


def _truncated(anchor_width: int, ref: str) -> bytes:
    return _foot(anchor_width, f" truncated · full text: {escape.one_line(ref)} ")


def _foot(anchor_width: int, label: str) -> bytes:
    """What follows the anchor of a closing line, and the blank line after the frame."""
    return label.encode() + _DASH * max(1, FRAME_WIDTH - 3 - anchor_width - len(label)) + b"\n\n"


def _head(preview: str) -> bytes:
    lines = preview.count("\n") + 1
    label = f"┌── first {lines} lines "
    return label.encode() + _DASH * max(1, FRAME_WIDTH - len(label)) + b"\n"


def _attempt(record: Record, state: RunState) -> Attempt:
    return next(a for a in reversed(state.attempts) if a.n == record.attempt)


def _opening(attempt: Attempt, *, first: bool) -> bytes:
    started = attempt.started_iso
    pid = "-" if attempt.pid is None else attempt.pid
    return (
        f"{'' if first else chr(10)}==== attempt {attempt.n} · started {started[:10]} {started[11:19]}"
        f" · pid {pid} · resume_seq {attempt.resume_seq} ====\n\n"
    ).encode()


def _crash_marker(attempt: Attempt) -> bytes:
    ended = attempt.ended_iso or attempt.last_iso
    cause = escape.one_line(attempt.cause or "")
    lines = [f"\n---- attempt {attempt.n} ended at {ended[11:19]} without run.end ({cause}) ----\n"]
    lines += [
        f"     open: {escape.one_line(_open_step(step))}\n" for death in attempt.deaths for step in death.open
    ]
    return "".join(lines).encode()


def _open_step(step: Json) -> str:
    seq, name = step.get("seq"), step.get("name") or "-"
    if step.get("missing_parent"):
        return f"- span {step.get('span')} (parent never arrived)"
    if isinstance(seq, int):
        return f"{figures.anchor(seq)} {name} ({step.get('type')}, {_age(step)})"
    if "requested_in" in step:
        asked = step["requested_in"]
        return (
            f"- {name} (requested in {figures.anchor(asked)})"
            if isinstance(asked, int)
            else f"- {name} (requested)"
        )
    return f"- {name} ({step.get('type')}, {_age(step)})"


def _age(step: Json) -> str:
    age = step.get("age")
    return f"{age:.1f}s" if isinstance(age, float) else f"{age}s"


@dataclass(slots=True, frozen=True)
class Mark:
    """A line of agent.logs that the collector began: an event's, or a banner's.

    ``kind`` is ``event`` (``number`` its seq), ``opened`` or ``crashed`` (``number`` the attempt);
    ``offset`` is in bytes.
    """

    kind: str
    number: int
    offset: int


_KINDS: Final = {b"====": "opened", b"----": "crashed"}


def parse(lines: Iterable[bytes]) -> Iterator[Mark]:
    """The events and banners of an agent.logs, given its lines (a binary file gives just these)."""
    offset = 0
    for line in lines:
        match = _LINE.match(line)
        if match is not None:
            seq, banner, attempt = match.groups()
            yield Mark("event", int(seq), offset) if seq else Mark(_KINDS[banner], int(attempt), offset)
        offset += len(line)
