"""Protobuf's wire format, as far as finding the fields of a message goes. Knows no schema.

An Export request is taken apart here before any message class sees it, so that one broken item
costs itself and not its batch, and so that a large request can be read in small steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5

_VARINT_MAX: Final = 10
"""Bytes of the longest varint."""
_MORE: Final = 0x80


class Malformed(ValueError):
    """Bytes that are no message."""


class Field(NamedTuple):
    """A field: its number and wire type, where its key begins, and where its value lies."""

    number: int
    wire_type: int
    key_at: int
    start: int
    stop: int


def fields(data: bytes, at: int, end: int) -> Iterator[Field]:
    """The fields of the message in ``data[at:end]``. Raises Malformed where it is none."""
    while at < end:
        key_at = at
        key, at = varint(data, at, end)
        number, wire_type = key >> 3, key & 7
        start = at
        if wire_type == LENGTH:
            length, start = varint(data, at, end)
            at = start + length
        elif wire_type == VARINT:
            _, at = varint(data, at, end)
        elif wire_type == FIXED64:
            at += 8
        elif wire_type == FIXED32:
            at += 4
        else:
            raise Malformed(f"wire type {wire_type} at byte {key_at}")
        if at > end or number == 0:
            raise Malformed(f"field {number} at byte {key_at} runs over its message")
        yield Field(number, wire_type, key_at, start, at)


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at ``at`` and where it ends."""
    value = shift = 0
    stop = min(end, at + _VARINT_MAX)
    while at < stop:
        byte = data[at]
        at += 1
        if byte < _MORE:
            return value | byte << shift, at
        value |= (byte & ~_MORE) << shift
        shift += 7
    raise Malformed(f"number at byte {at} does not end")


def encode_varint(value: int) -> bytes:
    """``value`` in seven bits a byte."""
    out = bytearray()
    while value >= _MORE:
        out.append(value & ~_MORE & 0xFF | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)
