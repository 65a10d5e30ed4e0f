"""Second try at a message protobuf refuses: broken strings become readable, what is too deep becomes text.

Works on the wire bytes along a message's descriptor. What is changed is noted as edits and put together
once, so a large value is never copied from level to level; everything else stays as it was sent. Pauses,
because a message may have millions of fields.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from agentrund.receivers.decode.otlp_json_text import json_text
from agentrund.receivers.decode.otlp_values import Pause
from agentrund.receivers.decode.protobuf_wire import LENGTH, Field, encode_varint, fields

DEPTH_MAX: Final = 100
"""Levels of messages that protobuf reads, the outermost being 0."""
_PAUSE_EVERY: Final = 256
_ANY_VALUE: Final[Descriptor] = AnyValue.DESCRIPTOR
_STRING_VALUE: Final = AnyValue.STRING_VALUE_FIELD_NUMBER
_LEVELS_BELOW: Final = {AnyValue.ARRAY_VALUE_FIELD_NUMBER: 2, AnyValue.KVLIST_VALUE_FIELD_NUMBER: 3}
"""How many levels below an AnyValue the values in it lie, by the field that holds them."""


def repaired(data: bytes, kind: type[Message]) -> Generator[None, None, tuple[bytes, list[str]]]:
    """``data`` as a ``kind`` can be read from it, and what was changed. Raises Malformed where it cannot."""
    repair = _Repair(data)
    yield from repair.outermost(kind)
    return repair.result(), repair.notes()


class _Repair:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._edits: list[tuple[int, int, bytes]] = []
        self._strings = 0
        self._texts = 0
        self._walked = 0

    def result(self) -> bytes:
        parts: list[bytes] = []
        taken = 0
        for at, stop, new in sorted(self._edits):
            parts += (self._data[taken:at], new)
            taken = stop
        parts.append(self._data[taken:])
        return b"".join(parts)

    def notes(self) -> list[str]:
        notes = []
        if self._strings:
            notes.append(f"strings of invalid UTF-8, repaired: {self._strings}")
        if self._texts:
            notes.append(f"values nested too deeply for protobuf, kept as JSON text: {self._texts}")
        return notes

    def outermost(self, kind: type[Message]) -> Generator[None, None, None]:
        for field in fields(self._data, 0, len(self._data)):
            # A field that can be read is left alone: of a large message most can.
            if not _is_readable(kind, self._data[field.key_at : field.stop]):
                yield from self._field(field, _members(kind.DESCRIPTOR), 0)
            if self._step():
                yield Pause

    def _step(self) -> bool:
        self._walked += 1
        return self._walked % _PAUSE_EVERY == 0

    def _message(self, field: Field, kind: Descriptor, depth: int) -> Generator[None, None, int]:
        """Look through a message at ``depth``; returns by how many bytes it has grown."""
        members = _members(kind)
        growth = 0
        for inner in fields(self._data, field.start, field.stop):
            growth += yield from self._field(inner, members, depth)
            if self._step():
                yield Pause
        return growth

    def _field(
        self, field: Field, members: dict[int, Descriptor | None], depth: int
    ) -> Generator[None, None, int]:
        if field.wire_type != LENGTH or field.number not in members:
            return 0
        kind = members[field.number]
        if kind is None:
            return self._string(field)
        if kind is _ANY_VALUE and self._is_too_deep(field, depth + 1):
            text, strings = yield from json_text(self._data, field.start, field.stop)
            self._texts += 1
            self._strings += strings
            value = text.encode()
            return self._replace(field, _head(_STRING_VALUE, len(value)) + value)
        growth = yield from self._message(field, kind, depth + 1)
        if growth:
            new = _head(field.number, field.stop - field.start + growth)
            self._edits.append((field.key_at, field.start, new))
            growth += len(new) - (field.start - field.key_at)
        return growth

    def _string(self, field: Field) -> int:
        value = self._data[field.start : field.stop]
        try:
            value.decode()
        except UnicodeDecodeError:
            self._strings += 1
            return self._replace(field, value.decode("utf-8", "replace").encode())
        return 0

    def _replace(self, field: Field, value: bytes) -> int:
        new = _head(field.number, len(value)) + value
        self._edits.append((field.key_at, field.stop, new))
        return len(new) - (field.stop - field.key_at)

    def _is_too_deep(self, field: Field, depth: int) -> bool:
        """Whether the values in the AnyValue at ``depth`` lie beyond what protobuf reads."""
        if depth + max(_LEVELS_BELOW.values()) <= DEPTH_MAX:
            return False
        return any(
            depth + _LEVELS_BELOW.get(inner.number, 0) > DEPTH_MAX
            for inner in fields(self._data, field.start, field.stop)
        )


@cache
def _members(kind: Descriptor) -> dict[int, Descriptor | None]:
    """The strings (None) and messages of a message, by number."""
    members: dict[int, Descriptor | None] = {}
    for field in kind.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            members[field.number] = None
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            members[field.number] = field.message_type
    return members


def _is_readable(kind: type[Message], data: bytes) -> bool:
    try:
        kind.FromString(data)
    except DecodeError:
        return False
    return True


def _head(number: int, length: int) -> bytes:
    return encode_varint(number << 3 | LENGTH) + encode_varint(length)
