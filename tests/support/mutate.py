"""Input gone wrong, from input that is right. ``chance`` is a ``random.Random``, hypothesis's or a seeded one."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from agentrund.receivers.decode.protobuf_wire import encode_varint

WORDS = (
    b"\x00", b"\xff\xfe", b'"', b"\\", b"{", b"}", b"[" * 300, b'{"a":' * 300, b"null", b"NaN", b"-Infinity", b"1e999",
    b"9" * 400, b"9" * 5000, b"-0", b"\\ud800", b"\\u0000", b"\xed\xa0\x80", "\u2028".encode(), b"\r", b"\t", b",",
    b":", b"\x1b[2J", b"\xef\xbb\xbf",
)  # fmt: skip
"""Pieces that text formats trip over."""

WIRE = (
    b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0a\x80", b"\x80" * 11, b"\x0b", b"\x0c",
    b"\x0d\x01", b"\x09\x01", b"\x00", b"\x02\x00", b"\x0e", b"\x0f", b"\xfa\xff\xff\xff\x0f\x01x", b"\x12\x00" * 200,
    b"\x0a\x00" * 200, b"\x1a\x7f", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
)  # fmt: skip
"""Lengths that lie, wire types that do not fit, groups, numbers without an end."""

_HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**400, 0.1, -1e308, float("nan"), float("inf"),
    "", " ", "x", "x" * 5000, "\x00", "\ud800", "\u202e", "\x1b[31m", "../../etc/passwd", "#0001", "run.end",
    "20200101_000000_0000", [], {}, [None], [[]], {"": None}, {"ref": "blobs/../../x.txt", "preview": "", "bytes": -1},
)  # fmt: skip


def hostile(chance: Random) -> Any:
    """A value that somebody forgot to think of."""
    if chance.random() < 0.05:
        value: Any = chance.choice((1, "x", {}))
        for _ in range(chance.choice((5, 199, 200, 300))):
            value = [value] if chance.random() < 0.5 else {"k": value}
        return value
    return copy.deepcopy(chance.choice(_HOSTILE))


def in_bytes(chance: Random, data: bytes, words: tuple[bytes, ...] = WORDS) -> bytes:
    """Bytes flipped, cut, repeated, put in."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        at, kind = chance.randrange(len(out) + 1), chance.randrange(6)
        end = min(len(out), at + chance.choice((1, 2, 8, 64)))
        if kind == 0 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = chance.choice((0, 0x0A, 0x20, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif kind == 2:
            del out[at:end]
        elif kind == 3:
            out[at:at] = out[at:end] * chance.choice((1, 3, 50))
        elif kind == 4:
            del out[at:]
        else:
            out[at:at] = chance.choice(words)
    return bytes(out)


def in_value(chance: Random, value: Any) -> Any:
    """A JSON value with parts replaced, renamed, taken away or added."""
    out = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 2, 3))):
        places = list(_places(out))
        if not places:
            return hostile(chance)
        holder, key = chance.choice(places)
        kind = chance.randrange(5)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[chance.choice(("n", "op", "type", "payload", "", "x" * 300, "ref", "run_id"))] = (
                holder.pop(key)
            )
        elif kind == 2:
            other, name = chance.choice(places)
            holder[key] = copy.deepcopy(other.get(name) if isinstance(other, dict) else None)
        else:
            holder[key] = hostile(chance)
    return out


def _places(value: Any) -> Any:
    """Every holder and key in a JSON value."""
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, (dict, list)):
            for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
                yield holder, key
                waiting.append(holder[key])


def as_line(value: Any) -> bytes:
    """A JSON value as one line, with what JSON does not allow where it has that."""
    return json.dumps(value, separators=(",", ":")).encode("utf-8", "surrogatepass")


def line(chance: Random, frame: Any) -> bytes:
    """A frame gone wrong, as one line without its newline."""
    kind = chance.randrange(4)
    made = as_line(in_value(chance, frame) if kind else frame)
    return (in_bytes(chance, made) if kind < 2 else made).replace(b"\n", b" ")


def in_lines(chance: Random, data: bytes) -> bytes:
    """A file of JSON, whole or in lines, with a value of it gone wrong; any other with bytes of it."""
    lines = data.splitlines(keepends=True) or [b""]
    for at, end in ((0, len(lines)), *((n, n + 1) for n in chance.sample(range(len(lines)), 1))):
        try:
            value = json.loads(b"".join(lines[at:end]))
            lines[at:end] = [as_line(in_value(chance, value)) + b"\n"]
        except (ValueError, RecursionError):
            continue  # no JSON, or nested too deeply to be taken apart
        return b"".join(lines)
    return in_bytes(chance, data)


# -- protobuf -------------------------------------------------------------------------------------


def in_message(chance: Random, message: Message) -> Message:
    """A message with fields set to odd values, cleared or repeated, anywhere in it."""
    out = copy.deepcopy(message)
    for _ in range(chance.choice((1, 2, 4))):
        parts = list(_parts(out))
        part = chance.choice(parts)
        field = chance.choice(part.DESCRIPTOR.fields)
        if chance.random() < 0.2:
            part.ClearField(field.name)
        elif field.message_type is not None:
            _set_message(chance, part, field, [p for p in parts if p.DESCRIPTOR is field.message_type])
        else:
            _set_scalar(chance, part, field)
    return out


def _parts(message: Message) -> Any:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                yield from _parts(part)


def _set_message(chance: Random, part: Message, field: FieldDescriptor, others: list[Message]) -> None:
    made = [copy.deepcopy(chance.choice(others)) for _ in range(chance.choice((1, 1, 40)))] if others else []
    if field.is_repeated:
        getattr(part, field.name).extend(made)
    elif made and not any(p is part for p in _parts(made[0])):
        getattr(part, field.name).CopyFrom(made[0])
    else:
        getattr(part, field.name).SetInParent()


_STRINGS = (
    "",
    "x",
    "x" * 20_000,
    "\x00",
    "gen_ai.operation.name",
    "\u202e\x1b[2J",
    '{"a": [',
    "[" * 500,
    "#0001",
    "\n",
)
_INTEGERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1, 17)


def _set_scalar(chance: Random, part: Message, field: FieldDescriptor) -> None:
    kinds = FieldDescriptor
    choices: tuple[Any, ...]
    if field.type == kinds.TYPE_STRING:
        choices = _STRINGS
    elif field.type == kinds.TYPE_BYTES:
        choices = (b"", b"\x00" * 8, b"\x00" * 16, b"\xff" * 8, b"\xff" * 16, b"x" * 7, b"x" * 5000)
    elif field.type in (kinds.TYPE_DOUBLE, kinds.TYPE_FLOAT):
        choices = (0.0, -0.0, 1e308, float("nan"), float("inf"))
    elif field.type == kinds.TYPE_BOOL:
        choices = (True, False)
    else:
        choices = _INTEGERS
    try:
        value = chance.choice(choices)
        getattr(part, field.name).append(value) if field.is_repeated else setattr(part, field.name, value)
    except ValueError:
        return  # a number that this field cannot hold


def body(chance: Random, request: Message) -> bytes:
    """A request gone wrong, as bytes: in its meaning, in its wire format, or in both."""
    kind = chance.randrange(5)
    made = (in_message(chance, request) if kind < 3 else request).SerializeToString()
    if kind == 4:
        for _ in range(chance.choice((3, 90, 110, 2000))):
            made = b"\x0a" + encode_varint(len(made)) + made
        return made
    return in_bytes(chance, made, WIRE) if kind else made
