"""JSON from strangers to strict JSON: what can be kept as it came, and what must be repaired.

Repairs (run-folder contract, "trace.jsonl"): invalid UTF-8 and lone surrogates become U+FFFD; NaN,
Infinity and numbers beyond a double become the strings "NaN", "Infinity", "-Infinity"; of a repeated
key the last value counts; what is nested too deeply becomes a string of its own text. Integers keep their
digits; beyond what Python parses they become strings. A byte order mark before a line is no part of it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from agentrund.model.event import Json
from agentrund.receivers.decode.json_folding import folded

_DECODE: Final = msgspec.json.Decoder().decode
_ENCODER: Final = msgspec.json.Encoder()
_MAX_DIGITS: Final = min(4000, sys.get_int_max_str_digits() or 4000)
"""Longest integer handled as one: CPython refuses more than 4,300 digits by default."""

MAX_DEPTH: Final = 200
"""Levels a payload may be nested: what reads it later may stop at 254 (orjson) or at its own stack's end."""
_RETURN, _TAB, _SPACE = b"\r\t "
"""Looked for as integers: a third of the time that a search for bytes takes."""
_BOM: Final = "\ufeff"
_LONE: Final = re.compile("[\ud800-\udfff]").subn


def clean_object(raw: bytes) -> Json | None:
    """The parsed object if its bytes may be stored as they are, else None."""
    if raw[:1] != b"{" or _RETURN in raw:
        return None
    try:
        value = _DECODE(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    openings = raw.count(b"{")
    if openings == 1 and raw.count(b"[") < MAX_DEPTH:
        keys: int | None = len(value)  # no object inside, and too few arrays to be too deep: no need to look
    else:
        keys = _keys(value, MAX_DEPTH)
    if keys is None:
        return None
    # Other counts mean a repeated key, blanks before a colon, or a string that holds `":`: rare, so look.
    blank = _TAB in raw or (_SPACE in raw and b" :" in raw)
    if (blank or keys != raw.count(b'":')) and _repeats_a_key(raw):
        return None
    return value


def _repeats_a_key(raw: bytes) -> bool:
    def watch(pairs: list[tuple[str, Any]]) -> None:
        if len({key for key, _ in pairs}) != len(pairs):
            raise _RepeatedKeyError

    try:
        json.loads(raw, object_pairs_hook=watch, parse_int=len, parse_float=len)
    except (_RepeatedKeyError, RecursionError):
        return True
    return False


class _RepeatedKeyError(Exception):
    """An object names a key twice."""


def _keys(value: Json | list[Any], depth: int) -> int | None:
    """How many keys a value has, nested ones too; None where it is nested deeper than ``depth``."""
    if depth == 0:
        return None
    total = 0
    items: Iterable[Any] = value
    if type(value) is dict:
        total, items = len(value), value.values()
    for item in items:
        if type(item) is dict or type(item) is list:
            inner = _keys(item, depth - 1)
            if inner is None:
                return None
            total += inner
    return total


def repair(raw: bytes) -> tuple[Any, list[str]]:
    """Any JSON value, and what had to be changed in its text. Raises ValueError where it is no JSON."""
    return _Repair().read(raw)


def depth_within(value: Json | list[Any], levels: int) -> bool:
    """Whether nothing in ``value`` is nested deeper than ``levels``, itself the first."""
    return _keys(value, levels) is not None


class _TooDeepError(Exception):
    """Nested deeper than a payload may be."""


class _Repair:
    """One value being repaired, and the count of what was lost or moved by it. Numbers lose nothing."""

    def __init__(self) -> None:
        self._strings = 0
        self._repeated = 0
        self._folded = 0

    def read(self, raw: bytes) -> tuple[Any, list[str]]:
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = raw.decode("utf-8", "replace")
            self._strings = 1
        text = text.removeprefix(_BOM)
        try:
            value = self._parse(text)
        except (RecursionError, _TooDeepError):
            self._repeated = 0
            text, self._folded = folded(text, MAX_DEPTH + 1)
            value = self._parse_folded(text)
        return value, self._notes()

    def _parse_folded(self, text: str) -> Any:
        try:
            return self._parse(text)
        except RecursionError as error:
            raise ValueError("its brackets do not end") from error

    def _parse(self, text: str) -> Any:
        value = json.loads(
            text,
            strict=False,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
            object_pairs_hook=self._object,
        )
        return self._scrub(value, MAX_DEPTH + 1)

    def _object(self, pairs: list[tuple[str, Any]]) -> Json:
        found = dict(pairs)
        self._repeated += len(pairs) - len(found)
        return found

    def _scrub(self, value: Any, levels: int) -> Any:
        """Lone surrogates out of every string and key. Raises _TooDeepError."""
        if isinstance(value, str):
            return self._text(value)
        if not isinstance(value, (dict, list)):
            return value
        if levels == 0:
            raise _TooDeepError
        if isinstance(value, list):
            return [self._scrub(item, levels - 1) for item in value]
        clean = {self._text(key): self._scrub(item, levels - 1) for key, item in value.items()}
        self._repeated += len(value) - len(clean)
        return clean

    def _text(self, value: str) -> str:
        if value.isascii():
            return value
        try:
            value.encode()
        except UnicodeEncodeError:
            value, _ = _LONE("\ufffd", value)
            self._strings += 1
        return value

    def _notes(self) -> list[str]:
        notes = []
        if self._strings:
            notes.append("text that is no UTF-8, replaced")
        if self._repeated:
            notes.append(f"repeated keys, the last value kept: {self._repeated}")
        if self._folded:
            notes.append(f"values nested deeper than {MAX_DEPTH} levels, kept as JSON text: {self._folded}")
        return notes


def _constant(name: str) -> str:
    return name


def _float(digits: str) -> float | str:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _int(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MAX_DIGITS else digits


def encode(value: object) -> bytes:
    """Compact JSON of a repaired value."""
    return _ENCODER.encode(value)
