"""One line of the stream protocol to a frame: an event, a hello, or a control frame.

Decides only what a line says; which run it belongs to is the sink's business. A line that is clean is
read in one pass and keeps its payload's own bytes; any other goes the slow way through ``repair``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from agentrund.model import kinds
from agentrund.model.errors import Rejected
from agentrund.model.event import MAX_NAME, MAX_SESSION, Event, Json
from agentrund.model.source import SOURCE_ID
from agentrund.receivers.decode.strict_json import clean_object, repair

PROTOCOL_VERSION: Final = 1
MAX_INTEGER: Final = 2**53 - 1
"""Largest ``n`` and ``dur_ms``: what every JSON reader can count with."""

MAX_VALUES: Final = 1 << 20
"""Values in one line's objects and arrays: each takes up to a hundred bytes once it is parsed."""
_LONG: Final = 1 << 20
"""A shorter line cannot have that many."""
_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""An unended one too: to look for its end again and again would take for ever."""

_TYPE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}").fullmatch
_LEADING_N: Final = re.compile(rb'\{"n":([1-9]\d{0,15}),').match
_EMPTY: Final = msgspec.Raw(b"{}")


@dataclass(slots=True)
class EventFrame:
    """An event, and the run it names itself where it does (senders without hello)."""

    event: Event
    session_id: str | None = None
    run_id: str | None = None


@dataclass(slots=True, frozen=True)
class Hello:
    """A source introduces itself. ``metadata`` in the protocol's order, None values left out."""

    source: str
    pid: int | None
    session_id: str | None
    run_id: str | None
    metadata: Json
    parent: str | None = None
    """``source/span`` (or ``source/``) of the process that started it, where run_id is not known."""
    ts: float | None = None
    """When the source's story began, epoch seconds."""
    orphan: bool = False
    """What follows was left behind by a dead process (``pid``), and is handed in by another."""


@dataclass(slots=True, frozen=True)
class Control:
    """Any other frame: ``op`` and its keys."""

    op: str
    args: Json


Frame = EventFrame | Hello | Control


class _Fast(msgspec.Struct):
    """The keys of an event; ``op`` and foreign keys send the line elsewhere or are ignored."""

    type: str = ""
    n: int | None = None
    name: str | None = None
    span: str | None = None
    parent: str | None = None
    ts: float | None = None
    status: str | None = None
    dur_ms: int | None = None
    payload: msgspec.Raw = _EMPTY
    op: str | None = None
    session_id: str | None = None
    run_id: str | None = None


_seen_types: Final[set[str]] = set()
"""Types that were found good: a sender uses a dozen, and each is looked at once."""
_SEEN_MAX: Final = 1024

_decode_fast: Final = msgspec.json.Decoder(_Fast).decode


class HelloRefused(Rejected):
    """A hello that cannot be read: until a good one, its sender has no place."""


class SlowLines:
    """How many lines needed the slow way: a fast path that has silently become the slow one shows here."""

    count = 0


def decode(line: bytes) -> Frame:
    """The frame of one line (without its newline). Raises ``Rejected`` with the protocol's code."""
    if len(line) > _LONG and _values(line) > MAX_VALUES and _values(_STRINGS.sub(b"", line)) > MAX_VALUES:
        # Of its text nothing is parsed, and there may be as much as fits.
        raise Rejected(
            "bad_event", f"a line may have {MAX_VALUES} values; send them as text", n=_number_of(line)
        )
    try:
        fast = _decode_fast(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _decode_slow(line)
    if fast.op is not None or not _is_usual(fast):
        return _decode_slow(line)
    raw = bytes(fast.payload)
    payload = clean_object(raw)
    if payload is None:
        return _decode_slow(line)
    event = Event(
        fast.type,
        fast.name,
        fast.span,
        fast.parent,
        fast.ts,
        fast.status,
        fast.dur_ms,
        payload,
        raw,
        fast.n,
    )
    return EventFrame(event, fast.session_id, fast.run_id)


def _is_usual(fast: _Fast) -> bool:
    """Whether nothing about an event needs a second look; what does is judged on the slow way."""
    if fast.type not in _seen_types and not _may_be_sent(fast.type):
        return False
    labels = len(fast.name or "") + len(fast.span or "") + len(fast.parent or "")
    return (
        labels <= MAX_NAME
        and (fast.status is None or len(fast.status) <= MAX_NAME)
        and (fast.n is None or 1 <= fast.n <= MAX_INTEGER)
        and (fast.dur_ms is None or 0 <= fast.dur_ms <= MAX_INTEGER)
        and (fast.session_id is None or len(fast.session_id) <= MAX_SESSION)
        and (fast.run_id is None or len(fast.run_id) <= MAX_SESSION)
    )


def _may_be_sent(kind: str) -> bool:
    if _TYPE(kind) is None or kinds.is_reserved(kind):
        return False
    if len(_seen_types) < _SEEN_MAX:
        _seen_types.add(kind)
    return True


def _decode_slow(line: bytes) -> Frame:
    SlowLines.count += 1
    try:
        frame, repairs = repair(line)
    except ValueError as error:
        raise Rejected("bad_json", f"not a JSON object: {error}", n=_number_of(line)) from error
    if not isinstance(frame, dict):
        raise Rejected("bad_json", f"a frame is a JSON object, not {_name_of(frame)}")
    op = frame.get("op")
    if op is None:
        return _event(frame, repairs)
    if not isinstance(op, str):
        raise Rejected("bad_frame", "op must be a string")
    if op == "hello":
        return _hello(frame, repairs)
    return Control(op, frame)


def _values(line: bytes) -> int:
    return line.count(b",") + line.count(b"[") + line.count(b"{")


def _number_of(line: bytes) -> int | None:
    """A line's number, where it stands first as clients write it: settled, it is not sent again for ever."""
    known = _LEADING_N(line)
    return int(known[1]) if known else None


# -- events ---------------------------------------------------------------------------------------


def _event(frame: Json, repairs: list[str]) -> EventFrame:
    n = frame.get("n")
    if n is not None and (not _is_int(n) or not 1 <= n <= MAX_INTEGER):
        raise Rejected("bad_event", "n must be an integer from 1 to 2^53-1")
    kind = frame.get("type")
    if not isinstance(kind, str) or _TYPE(kind) is None:
        raise Rejected("bad_event", "type must match [A-Za-z0-9_.-]{1,64}", n=n)
    if kinds.is_reserved(kind):
        raise Rejected("bad_event", f"{kind} is written by the collector only", n=n)
    name, span, parent, status = (_label(frame, key, n) for key in ("name", "span", "parent", "status"))
    payload = frame.get("payload")
    if payload is None:
        payload = {}
    if not isinstance(payload, dict):
        raise Rejected("bad_event", f"payload must be an object, not {_name_of(payload)}", n=n)
    dur_ms = frame.get("dur_ms")
    if dur_ms is not None and ((number := _number(dur_ms)) is None or number > MAX_INTEGER):
        raise Rejected("bad_event", "dur_ms must be an integer up to 2^53-1, or null", n=n)
    event = Event(
        kind,
        name,
        span,
        parent,
        _ts(frame.get("ts")),
        status,
        None if dur_ms is None else max(0, int(dur_ms)),
        payload,
        None,
        n,
        {"repairs": repairs} if repairs else None,
    )
    return EventFrame(event, _id(frame, "session_id", n), _id(frame, "run_id", n))


def _label(frame: Json, key: str, n: int | None) -> str | None:
    value = frame.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise Rejected("bad_event", f"{key} must be a string or null", n=n)
    if len(value) > MAX_NAME:
        raise Rejected("bad_event", f"{key} is longer than {MAX_NAME} characters", n=n)
    return value


def _id(frame: Json, key: str, n: int | None) -> str | None:
    value = frame.get(key)
    if value is None or (isinstance(value, str) and len(value) <= MAX_SESSION):
        return value
    raise Rejected("bad_event", f"{key} must be a string of at most {MAX_SESSION} characters, or null", n=n)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object) -> float | int | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _ts(value: object) -> float | None:
    """Epoch seconds; what no double can hold counts as left out."""
    number = _number(value)
    try:
        return None if number is None else float(number)
    except OverflowError:
        return None


_NAMES: Final[Mapping[type, str]] = {
    str: "a string",
    list: "an array",
    dict: "an object",
    bool: "a boolean",
    type(None): "null",
}


def _name_of(value: object) -> str:
    return _NAMES.get(type(value), "a number")


# -- hello ----------------------------------------------------------------------------------------

_METADATA: Final = (
    "framework",
    "framework_version",
    "model",
    "task",
    "tags",
    "argv",
    "cwd",
    "python",
    "platform",
    "git",
    "guardrails",
    "meta",
)
_ARRAYS: Final = frozenset({"tags", "argv"})
_OBJECTS: Final = frozenset({"git", "guardrails", "meta"})


def _hello(frame: Json, repairs: list[str]) -> Hello:
    version = frame.get("v", PROTOCOL_VERSION)
    if version != PROTOCOL_VERSION:
        raise HelloRefused("unsupported_version", f"this collector speaks version {PROTOCOL_VERSION}")
    source = frame.get("source")
    if not isinstance(source, str) or SOURCE_ID.fullmatch(source) is None:
        raise HelloRefused("bad_frame", f"source must match {SOURCE_ID.pattern}")
    pid = frame.get("pid")
    if pid is not None and (not _is_int(pid) or not 0 < pid < 2**31):
        raise HelloRefused("bad_frame", "pid must be a positive integer or null")
    for key in ("session_id", "run_id"):
        value = frame.get(key)
        if value is not None and not (isinstance(value, str) and len(value) <= MAX_SESSION):
            raise HelloRefused(
                "bad_frame", f"{key} must be a string of at most {MAX_SESSION} characters, or null"
            )
    metadata: Json = {}
    for key in _METADATA:
        value = frame.get(key)
        if value is None:
            continue
        expected = "an array" if key in _ARRAYS else "an object" if key in _OBJECTS else "a string"
        if _name_of(value) != expected:
            raise HelloRefused("bad_frame", f"{key} must be {expected} or null")
        metadata[key] = value
    if repairs:
        metadata["repairs"] = repairs
    parent = frame.get("parent")
    return Hello(
        source,
        pid,
        frame.get("session_id") or None,
        frame.get("run_id") or None,
        metadata,
        parent if isinstance(parent, str) else None,
        _ts(frame.get("ts")),
        frame.get("orphan") is True,
    )
