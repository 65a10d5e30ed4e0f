"""Second try at a message protobuf refuses: invalid UTF-8 in its strings becomes U+FFFD.

Works on the wire bytes along a message's descriptor; everything but the broken strings stays as sent.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from agentrund.receivers.decode.protobuf_wire import LENGTH, Malformed, encode_varint, fields

_DEPTH_MAX: Final = 100
"""Protobuf's own limit."""


def repair_strings(data: bytes, message: Descriptor) -> bytes:
    """``data`` with readable strings. Raises Malformed where more than its strings is broken."""
    return _message(data, message, _DEPTH_MAX)


def _message(data: bytes, message: Descriptor, depth: int) -> bytes:
    if depth == 0:
        raise Malformed("nested too deeply")
    known = message.fields_by_number
    out: list[bytes] = []
    for found in fields(data, 0, len(data)):
        field = known.get(found.number)
        value = data[found.start : found.stop]
        if field is None or found.wire_type != LENGTH:
            out.append(data[found.key_at : found.stop])
            continue
        if field.type == FieldDescriptor.TYPE_STRING:
            value = value.decode("utf-8", "replace").encode()
        elif field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type is not None:
            value = _message(value, field.message_type, depth - 1)
        out += (encode_varint(found.number << 3 | LENGTH), encode_varint(len(value)), value)
    return b"".join(out)
