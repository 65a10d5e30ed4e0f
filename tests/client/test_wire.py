"""Any value becomes strict JSON that still says what the value was, with and without orjson."""

from __future__ import annotations

import datetime as dt
import enum
import json
import math
from dataclasses import dataclass
from pathlib import PurePosixPath

import pytest

from agentrund_client import _wire
from agentrund_client._clean import MAX_DEPTH, clean, merged, text_of


@dataclass
class Point:
    x: int = 1
    when: object = None


class Colour(enum.Enum):
    RED = "red"


class Model:
    def model_dump(self):
        return {"role": "user"}


class Loud(str):
    __slots__ = ()

    def __str__(self):
        raise RuntimeError("no")


@pytest.fixture(params=["orjson", "json"])
def encoder(request, monkeypatch):
    if request.param == "json":
        monkeypatch.setattr(_wire, "_dumps", _wire._plain_dumps)
    else:
        pytest.importorskip("orjson")
        monkeypatch.setattr(_wire, "_dumps", _wire._first_dumps)
    return _wire.encode_frame


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        ([1.5, None, {"a": math.nan}], [1.5, None, {"a": "NaN"}]),
        (2**64, 2**64),
        (-(10**100), -(10**100)),
        (10**5000, hex(10**5000)),
        ("\ud83e", "\ufffd"),
        ("\ud83e\udd84", "🦄"),
        ({"\ud83e": 1}, {"\ufffd": 1}),
        ("\x00\u2028\n", "\x00\u2028\n"),
        (b"bytes", "bytes"),
        (b"\xff\xfe", "base64://4="),
        (bytearray(b"x"), "x"),
        ({7: "a", None: "b", True: "c", (1, 2): "d"}, {"7": "a", "null": "b", "true": "c", "(1, 2)": "d"}),
        ((1, 2), [1, 2]),
        ({1}, [1]),
        (dt.date(2026, 8, 30), "2026-08-30"),
        (dt.datetime(2026, 8, 30, 14, 22), "2026-08-30T14:22:00"),  # noqa: DTZ001
        (Point(2, dt.date(2026, 1, 1)), {"x": 2, "when": "2026-01-01"}),
        ([Colour.RED, math.inf], ["red", "Infinity"]),
        (Model(), {"role": "user"}),
        (PurePosixPath("/a/b"), "/a/b"),
        (Loud("text"), "text"),
        (len, "<built-in function len>"),
        (ValueError("x"), "ValueError('x')"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values(encoder, value, expected):
    line = encoder({"payload": value})
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert json.loads(line, parse_constant=pytest.fail)["payload"] == expected


def test_keys_that_look_alike():
    assert clean({"1": "a", 1: "b", 2.5: "c"}) == {"1": "a", "1_": "b", "2.5": "c"}


def test_cycles_and_depth(encoder):
    loop: list[object] = []
    loop.append(loop)
    assert json.loads(encoder({"a": loop}))["a"] == ["<list: contains itself>"]
    shared = [1]
    assert json.loads(encoder({"a": [shared, shared, {1}]}))["a"] == [[1], [1], [1]]
    value: object = 1
    for _ in range(5000):
        value = [value]
    assert f"nested deeper than {MAX_DEPTH} levels" in encoder({"a": value}).decode()


def test_numbers_of_lines():
    line = _wire.number(17, _wire.encode({"type": "log"}))
    assert line == b'{"n":17,"type":"log"}\n'
    assert _wire.last_number(line) == 17
    assert _wire.last_number(_wire.lost_line(3, 9)) == 9
    assert _wire.last_number(b'{"op":"lost","from":   3,"to":   12}\n') == 12
    assert _wire.last_number(b'{"op":"hello"}\n') == 0


def test_fitting_lines():
    small, large = b'{"n":1,"a":1}\n', b'{"n":2,"a":"' + b"x" * 100 + b'"}\n'
    assert _wire.fitting(small + large, 500) == small + large
    assert _wire.fitting(small + large, 50) == small + b'{"op":"lost","from":2,"to":2}\n'


@pytest.mark.parametrize("line", [b"", b"no", b"[1]", b"\xff", b"[" * 100_000, b"1e999", b"null"])
def test_decoding_anything(line):
    assert _wire.decode(line) == {}


def test_texts():
    assert text_of(None) is None
    assert text_of("x") == "x"
    assert text_of(b"\xff") == "base64:/w=="
    assert text_of({"a": {1}}) == '{"a": [1]}'


def test_merging_never_overwrites():
    assert merged({"a": 1}, {"a": 2, "a_": 3, "b": 4}) == {"a": 1, "a_": 2, "a__": 3, "b": 4}
