"""What protobuf refuses as a whole is read all the same: its strings repaired, its depths as text."""

from __future__ import annotations

import json

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from agentrund.receivers.decode.otlp_json_text import json_text
from agentrund.receivers.decode.otlp_repair import repaired
from agentrund.receivers.decode.otlp_values import Values
from agentrund.receivers.decode.protobuf_wire import Malformed
from support.otlp_build import any_value, field, key_values, nested, span


def finish(steps):
    """The result of a reader that pauses, and how often it did."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


def repair(data, kind=Span):
    (data, notes), _ = finish(repaired(data, kind))
    return kind.FromString(data), notes


def test_broken_strings_at_any_depth_become_readable_and_the_rest_stays():
    sent = span(
        attributes={"good": "ünï", "bad": "BROKEN", "deep": [{"in": "BROKEN"}], "n": 7}, name="BROKEN"
    )
    data = sent.SerializeToString().replace(b"BROKEN", b"br\xffken")
    with pytest.raises(DecodeError):
        Span.FromString(data)
    read, notes = repair(data)
    assert read == span(
        attributes={"good": "ünï", "bad": "br\ufffdken", "deep": [{"in": "br\ufffdken"}], "n": 7},
        name="br\ufffdken",
    )
    assert notes == ["strings of invalid UTF-8, repaired: 3"]


@given(st.lists(st.binary(max_size=200), min_size=8, max_size=8))
def test_whatever_bytes_stand_in_its_strings_a_span_is_read(strings):
    # Of equal size on the wire, so that no length has to be made again by hand.
    marks = [f"<{n}>".ljust(200, "x") for n in range(8)]
    name, key, value, inner_key, inner, message, kind, words = marks
    sent = span(
        name=name,
        attributes={key: value, "l": [{inner_key: [inner]}]},
        error=message,
        exception=(kind, words),
    )
    data = sent.SerializeToString()
    for mark, given_ in zip(marks, strings, strict=True):
        data = data.replace(mark.encode(), given_.ljust(200, b"."))
    read, _ = repair(data)
    said = [given_.ljust(200, b".").decode("utf-8", "replace") for given_ in strings]
    name, key, value, inner_key, inner, message, kind, words = said
    assert (read.name, read.status.message, read.span_id) == (name, message, sent.span_id)
    assert Values().attributes(read.attributes) == {key: value, "l": [{inner_key: [inner]}]}
    assert [pair.value.string_value for pair in read.events[0].attributes] == [kind, words]


def test_unknown_fields_pass_and_a_torn_message_does_not():
    data = span(name="x").SerializeToString()
    (kept, notes), _ = finish(repaired(data + b"\xf8\x3f\x05", Span))
    assert (kept, notes) == (data + b"\xf8\x3f\x05", [])
    with pytest.raises(Malformed):
        finish(repaired(data[:-1], Span))


@pytest.mark.parametrize(("shape", "levels"), [("[", 49), ("{", 32)])
def test_what_protobuf_can_carry_stays_as_it_is_and_one_level_more_is_text(shape, levels):
    data = field(9, field(1, b"deep") + field(2, nested(shape, levels)))
    assert repair(data + field(5, b"na\xffme"))[1] == ["strings of invalid UTF-8, repaired: 1"]
    with pytest.raises(DecodeError):
        Span.FromString(field(9, field(1, b"deep") + field(2, nested(shape, levels + 1))))
    read, notes = repair(field(9, field(1, b"deep") + field(2, nested(shape, levels + 1))))
    value = Values().attributes(read.attributes)["deep"]
    for _ in range(levels):
        value = value[0] if shape == "[" else value["k"]
    assert value == ("[1]" if shape == "[" else '{"k":1}')
    assert notes == ["values nested too deeply for protobuf, kept as JSON text: 1"]


@pytest.mark.parametrize(("shape", "depth"), [("[", 100_000), ("{", 20_000), ("[{", 20_000)])
def test_a_hostile_depth_is_kept_in_full_and_read_with_pauses(shape, depth):
    data = field(9, field(1, b"deep") + field(2, nested(shape, depth))) + field(5, b"name")
    (read, notes), pauses = finish(repaired(data, Span))
    assert pauses > depth // 256
    assert len(notes) == 1
    value = Values().attributes(Span.FromString(read).attributes)["deep"]
    levels = 0
    while not isinstance(value, str):
        value = value[0] if isinstance(value, list) else value["k"]
        levels += 1
    assert levels + value.count("[") + value.count("{") == depth


def test_a_body_of_a_log_record_and_what_is_broken_in_its_depths():
    value = nested("[", 60, any_value("BROKEN").SerializeToString().replace(b"BROKEN", b"in\xff\xffde"))
    read, notes = repair(field(5, value), LogRecord)
    assert "in\ufffd\ufffdde" in str(Values().value(read.body))
    assert notes == [
        "strings of invalid UTF-8, repaired: 1",
        "values nested too deeply for protobuf, kept as JSON text: 1",
    ]


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)


@given(values)
def test_a_value_as_text_says_what_it_says_as_a_value(sent):
    message = any_value(sent)
    data = message.SerializeToString()
    (text, broken), _ = finish(json_text(data, 0, len(data)))
    assert (json.loads(text), broken) == (Values().value(message), 0)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_malformed(data):
    try:
        (text, _), _ = finish(json_text(data, 0, len(data)))
    except Malformed:
        return
    json.loads(text)


@given(st.binary(max_size=200))
def test_any_bytes_are_repaired_or_malformed(data):
    try:
        repair(data)
    except (Malformed, DecodeError):
        return


def test_a_large_message_with_one_broken_string_is_left_alone_where_it_can_be_read():
    sent = span(attributes={f"key-{n}": "v" * 40 for n in range(2000)} | {"bad": "BROKEN"})
    data = sent.SerializeToString().replace(b"BROKEN", b"br\xffken")
    (_, notes), pauses = finish(repaired(data, Span))
    assert notes == ["strings of invalid UTF-8, repaired: 1"]
    assert pauses == 2000 // 256


def test_the_last_of_several_values_counts_as_protobuf_has_it():
    data = key_values({"k": 1})[0].value.SerializeToString() + any_value("last").SerializeToString()
    assert Values().value(AnyValue.FromString(data)) == "last"
    assert finish(json_text(data, 0, len(data)))[0] == ('"last"', 0)
