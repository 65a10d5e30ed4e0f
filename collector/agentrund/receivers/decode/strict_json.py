"""JSON from strangers to strict JSON: what can be kept as it came, and what must be repaired.

Repairs (run-folder contract, "trace.jsonl"): invalid UTF-8 and lone surrogates become U+FFFD; NaN,
Infinity and numbers beyond a double become the strings "NaN", "Infinity", "-Infinity"; of a repeated
key the last value counts. Integers keep their digits; beyond what Python parses they become strings.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from agentrund.model.event import Json

_DECODE: Final = msgspec.json.Decoder().decode
_ENCODER: Final = msgspec.json.Encoder()
_MAX_DIGITS: Final = min(4000, sys.get_int_max_str_digits() or 4000)
"""Longest integer handled as one: CPython refuses more than 4,300 digits by default."""

MAX_DEPTH: Final = 200
"""Levels a payload may be nested: what reads it later may stop at 254 (orjson) or at its own stack's end."""
_RETURN, _TAB, _SPACE = b"\r\t "
"""Looked for as integers: a third of the time that a search for bytes takes."""
_TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"


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


def repair(raw: bytes) -> Any:
    """Any JSON value, repaired. Raises ValueError where it is no JSON at all, or nested too deeply."""
    text = raw.decode("utf-8", "replace")
    try:
        value = json.loads(
            text,
            strict=False,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    return _scrub(value, MAX_DEPTH + 1)


def _constant(name: str) -> str:
    return name


def _float(digits: str) -> float | str:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _int(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MAX_DIGITS else digits


def _scrub(value: Any, depth: int) -> Any:
    """Lone surrogates out of every string and key. Raises ValueError beyond ``depth`` levels."""
    if depth == 0:
        raise ValueError(_TOO_DEEP)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return {_text(key): _scrub(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_scrub(item, depth - 1) for item in value]
    return value


def _text(value: str) -> str:
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        # Joins surrogate pairs that were escaped apart, then replaces what stays alone.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def encode(value: object) -> bytes:
    """Compact JSON of a repaired value."""
    return _ENCODER.encode(value)
