from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.receivers.decode.protobuf_wire import (
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    Malformed,
    encode_varint,
    fields,
    varint,
)


@given(st.integers(0, (1 << 64) - 1))
def test_numbers_come_back(value):
    data = encode_varint(value)
    assert varint(data, 0, len(data)) == (value, len(data))


def test_every_wire_type_is_walked():
    data = b"\x08\x96\x01" + b"\x12\x03abc" + b"\x19" + b"8" * 8 + b"\x25" + b"4" * 4
    found = [(f.number, f.wire_type, data[f.start : f.stop]) for f in fields(data, 0, len(data))]
    assert found == [
        (1, VARINT, b"\x96\x01"),
        (2, LENGTH, b"abc"),
        (3, FIXED64, b"8" * 8),
        (4, FIXED32, b"4" * 4),
    ]


@pytest.mark.parametrize(
    "data",
    [b"\x12\x05abc", b"\x08", b"\x08\xff", b"\x19123", b"\x0b", b"\x0f", b"\x00\x01", b"\x08" + b"\xff" * 11],
)
def test_what_does_not_end_or_is_no_field_is_malformed(data):
    with pytest.raises(Malformed):
        list(fields(data, 0, len(data)))


@given(st.binary(max_size=200))
def test_any_bytes_are_walked_or_malformed(data):
    end = 0
    try:
        for field in fields(data, 0, len(data)):
            assert field.key_at == end
            end = field.stop
    except Malformed:
        return
    assert end == len(data)
