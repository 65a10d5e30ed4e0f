"""Lines to frames: what is refused, what is repaired, what is kept byte for byte."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.model.errors import Rejected
from agentrund.receivers.decode import strict_json
from agentrund.receivers.decode.jsonl import MAX_VALUES, Control, EventFrame, Hello, decode

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.text(), json_values, max_size=5)


def event_of(line: bytes):
    frame = decode(line)
    assert isinstance(frame, EventFrame)
    return frame.event


def strict(data: bytes) -> object:
    def refuse(name: str) -> float:
        raise ValueError(name)

    value = json.loads(data.decode("utf-8"), parse_constant=refuse)
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


@given(objects)
def test_a_clean_payload_keeps_its_bytes(payload):
    raw = json.dumps(payload, ensure_ascii=True, separators=(",", ":")).encode()
    event = event_of(b'{"n":3,"type":"log","payload":' + raw + b"}")
    try:
        json.dumps(payload, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    assert event.n == 3
    assert event.raw is None or event.raw == raw
    assert event.payload == json.loads(raw)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_frame_or_a_refusal(line):
    try:
        decode(line)
    except Rejected as error:
        assert error.code in {"bad_json", "bad_frame", "bad_event", "unsupported_version"}  # noqa: PT017


@given(objects, st.integers(0, 300), st.integers(0, 255))
def test_a_damaged_line_gives_a_frame_or_a_refusal(payload, at, byte):
    line = bytearray(json.dumps({"n": 1, "type": "log", "payload": payload}).encode())
    line[at % len(line)] = byte
    try:
        frame = decode(bytes(line))
    except Rejected:
        return
    if isinstance(frame, EventFrame):
        stored = frame.event.raw or strict_json.encode(frame.event.payload)
        strict(stored)


@pytest.mark.parametrize(
    ("payload", "stored"),
    [
        (b'{"a":"\\ud83e"}', {"a": "\ufffd"}),
        (b'{"\\ud83e":1}', {"\ufffd": 1}),
        (b'{"a":"\\ud83e\\udd16"}', {"a": "\U0001f916"}),
        (b'{"a":"\xff"}', {"a": "\ufffd"}),
        (b'{"a":NaN,"b":Infinity,"c":-Infinity}', {"a": "NaN", "b": "Infinity", "c": "-Infinity"}),
        (b'{"a":1e999,"b":-1e999}', {"a": "Infinity", "b": "-Infinity"}),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b'{"a" :1,"a":2}', {"a": 2}),
        (b'{"b":{"a"\t:1,"a":2}}', {"b": {"a": 2}}),
        (b'{"a":18446744073709551616}', {"a": 2**64}),
        (b'{"a":' + b"9" * 5000 + b"}", {"a": "9" * 5000}),
        (b'{"a":"tab\there\x0bvt\x0cff\rcr\x00nul"}', {"a": "tab\there\x0bvt\x0cff\rcr\x00nul"}),
        (b'{"\\u0000":"\\u0000"}', {"\x00": "\x00"}),
        (b'{"a":["\\ud83e","\\udd16"]}', {"a": ["\ufffd", "\ufffd"]}),
        (b'{"a":"\\u0000"}', {"a": "\x00"}),
        (b'{"a":"x\xe2\x80\xa8y"}', {"a": "x\u2028y"}),
    ],
)
def test_what_is_no_strict_json_is_repaired(payload, stored):
    event = event_of(b'{"n":1,"type":"log","payload":' + payload + b"}")
    assert event.payload == stored
    assert strict(event.raw or strict_json.encode(event.payload)) == stored


def test_integers_keep_their_digits_on_the_fast_path():
    event = event_of(b'{"type":"log","payload":{"a":123456789012345678901234567890}}')
    assert event.raw == b'{"a":123456789012345678901234567890}'
    assert event.payload["a"] == 123456789012345678901234567890


@pytest.mark.parametrize(
    ("line", "code", "n"),
    [
        (b"nonsense", "bad_json", None),
        (b"[1]", "bad_json", None),
        (b'"text"', "bad_json", None),
        (b"[" * 100_000, "bad_json", None),
        (b'{"n":4,"type":"log","payload":{"a":tru}}', "bad_json", 4),
        (b'{"n":4,"type":"log","payload":{"a":' + b"[" * 5000 + b"]" * 4999 + b"}}", "bad_json", 4),
        (b'{"n":4,"type":"log","payload":{"a":' + b'["' * 5000, "bad_json", 4),
        (b'{"n":4}', "bad_event", 4),
        (b'{"n":4,"type":"a b"}', "bad_event", 4),
        (b'{"n":4,"type":"' + b"x" * 65 + b'"}', "bad_event", 4),
        (b'{"n":4,"type":"run.start"}', "bad_event", 4),
        (b'{"n":4,"type":"run.resume"}', "bad_event", 4),
        (b'{"n":4,"type":"source.exit"}', "bad_event", 4),
        (b'{"n":4,"type":"log","payload":[]}', "bad_event", 4),
        (b'{"n":4,"type":"log","payload":"x"}', "bad_event", 4),
        (b'{"n":4,"type":"log","name":5}', "bad_event", 4),
        (b'{"n":4,"type":"log","span":{}}', "bad_event", 4),
        (b'{"n":4,"type":"log","parent":1}', "bad_event", 4),
        (b'{"n":0,"type":"log"}', "bad_event", None),
        (b'{"n":"1","type":"log"}', "bad_event", None),
        (b'{"n":4,"type":"log","name":"' + b"x" * 5000 + b'"}', "bad_event", 4),
        (b'{"n":4,"type":"log","status":"' + b"x" * 5000 + b'"}', "bad_event", 4),
        (b'{"op":1}', "bad_frame", None),
        (b'{"op":"hello","v":2,"source":"a"}', "unsupported_version", None),
        (b'{"op":"hello","source":"a/b"}', "bad_frame", None),
        (b'{"op":"hello","source":""}', "bad_frame", None),
        (b'{"op":"hello","source":"a","argv":"x"}', "bad_frame", None),
        (b'{"op":"hello","source":"a","pid":-1}', "bad_frame", None),
    ],
)
def test_bad_input_is_refused_with_its_code(line, code, n):
    with pytest.raises(Rejected) as caught:
        decode(line)
    assert (caught.value.code, caught.value.n) == (code, n)


def test_hello_keeps_what_it_says_in_order():
    hello = decode(
        b'{"op":"hello","v":1,"source":"s","task":"t","framework":"f","model":null,"extra":1,"session_id":""}'
    )
    assert hello == Hello("s", None, None, None, {"framework": "f", "task": "t"})


def test_other_ops_are_left_to_the_session():
    assert decode(b'{"op":"bye"}') == Control("bye", {"op": "bye"})


def test_negative_and_fractional_durations_and_odd_times_are_taken():
    event = event_of(b'{"type":"x","dur_ms":-5.7,"ts":"now"}')
    assert (event.dur_ms, event.ts) == (0, None)
    assert math.isclose(event_of(b'{"type":"x","ts":1.5}').ts, 1.5)


def test_two_hundred_levels_are_taken_as_they_came():
    raw = b'{"a":' + b"[" * 199 + b"]" * 199 + b"}"
    assert event_of(b'{"n":4,"type":"log","payload":' + raw + b"}").raw == raw


@pytest.mark.parametrize("inner", ["[]", "{}", '["\\ud83e",NaN,{"]}[{":"\\"]"}]'])
@pytest.mark.parametrize("levels", [201, 202, 990, 5000, 100_000])
def test_what_is_too_deep_is_kept_as_the_text_it_came_as(levels, inner):
    deep = b"[" * (levels - 2) + inner.encode() + b"]" * (levels - 2)
    event = event_of(b'{"n":4,"type":"log","payload":{"a":%b,"b":1}}' % deep)
    assert event.payload["b"] == 1
    value = event.payload["a"]
    for _ in range(strict_json.MAX_DEPTH - 1):
        (value,) = value
    assert value == "[" * (levels - 201) + inner + "]" * (levels - 201)
    assert event.src["repairs"][-1] == "values nested deeper than 200 levels, kept as JSON text: 1"
    strict(strict_json.encode(event.payload))


def test_hello_keeps_what_is_too_deep_as_text_too():
    hello = decode(b'{"op":"hello","source":"a","meta":{"a":%b}}' % (b"[" * 300 + b"]" * 300))
    assert str(hello.metadata["meta"]).count("[") == 300
    assert hello.metadata["repairs"] == ["values nested deeper than 200 levels, kept as JSON text: 1"]


@pytest.mark.parametrize(
    ("payload", "repairs"),
    [
        (b'{"a":"\xff"}', ["text that is no UTF-8, replaced"]),
        (b'{"a":"\\ud83e"}', ["text that is no UTF-8, replaced"]),
        (b'{"a":1,"a":2,"b":[{"c":1,"c":2}]}', ["repeated keys, the last value kept: 2"]),
        (
            b'{"\\ud83e":1,"\\ud83d":2}',
            ["text that is no UTF-8, replaced", "repeated keys, the last value kept: 1"],
        ),
        (b'{"a":NaN,"b":1e999}', None),
    ],
)
def test_what_a_repair_costs_is_noted(payload, repairs):
    event = event_of(b'{"n":1,"type":"log","payload":' + payload + b"}")
    assert event.src == ({"repairs": repairs} if repairs else None)


def test_a_byte_order_mark_is_no_part_of_a_line():
    assert event_of(b'\xef\xbb\xbf{"n":1,"type":"log"}').n == 1
    assert decode(b'\xef\xbb\xbf{"op":"hello","source":"s"}') == Hello("s", None, None, None, {})


@pytest.mark.parametrize("value", [b"1.5,", b"[],", b"{},", b'"",'])
def test_a_line_of_too_many_values_is_refused_unparsed_and_settled(value):
    line = b'{"n":7,"type":"log","payload":{"v":[' + value * (MAX_VALUES + 1) + b"0]}}"
    with pytest.raises(Rejected, match="values") as caught:
        decode(line)
    assert (caught.value.code, caught.value.n) == ("bad_event", 7)


@pytest.mark.parametrize("text", [b"1.5,", rb"[\"{\\"])
def test_text_may_hold_as_many_as_it_likes(text):
    event = event_of(b'{"type":"log","payload":{"text":"' + text * (MAX_VALUES + 1) + b'"}}')
    assert len(event.payload["text"]) >= MAX_VALUES


def test_a_long_line_of_quotes_that_never_end_is_refused_soon():
    with pytest.raises(Rejected):
        decode(b'{"n":1,"type":"' + rb"\",[" * (MAX_VALUES + 1))
