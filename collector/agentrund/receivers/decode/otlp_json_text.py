"""An AnyValue on the wire as JSON text, however deep it is.

For what is nested deeper than protobuf reads. Goes over the bytes with a list of what is still to be
written, not by recursion; text and numbers come out as ``otlp_values`` makes them.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Generator, Iterator
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from agentrund.receivers.decode.otlp_values import Pause, double
from agentrund.receivers.decode.protobuf_wire import Field, fields, varint

_PAUSE_EVERY: Final = 256
_INT64: Final = 1 << 63
_Todo = str | tuple[int, int]
"""Text, or where an AnyValue lies."""


def json_text(data: bytes, at: int, stop: int) -> Generator[None, None, tuple[str, int]]:
    """The AnyValue in ``data[at:stop]`` as text, and how many strings of invalid UTF-8 were repaired.

    Raises Malformed where it is none.
    """
    return (yield from _Writer(data).write(at, stop))


class _Writer:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._out: list[str] = []
        self._todo: list[_Todo] = []
        self._broken = 0
        self._walked = 0

    def write(self, at: int, stop: int) -> Generator[None, None, tuple[str, int]]:
        self._todo.append((at, stop))
        while self._todo:
            next_ = self._todo.pop()
            if isinstance(next_, str):
                self._out.append(next_)
            else:
                yield from self._value(*next_)
        return "".join(self._out), self._broken

    def _value(self, at: int, stop: int) -> Generator[None, None, None]:
        held = None
        for field in fields(self._data, at, stop):
            if field.number <= AnyValue.BYTES_VALUE_FIELD_NUMBER:
                held = field  # of several values the last one counts
            if self._step():
                yield Pause
        if held is None:
            self._out.append("null")
        elif held.number == AnyValue.ARRAY_VALUE_FIELD_NUMBER:
            yield from self._items(held)
        elif held.number == AnyValue.KVLIST_VALUE_FIELD_NUMBER:
            yield from self._pairs(held)
        else:
            self._out.append(self._scalar(held))

    def _step(self) -> bool:
        self._walked += 1
        return self._walked % _PAUSE_EVERY == 0

    def _items(self, array: Field) -> Generator[None, None, None]:
        todo: list[_Todo] = ["["]
        for item in fields(self._data, array.start, array.stop):
            if item.number == ArrayValue.VALUES_FIELD_NUMBER:
                todo += ((item.start, item.stop), ",")
            if self._step():
                yield Pause
        self._enclose(todo, "]")

    def _pairs(self, kvlist: Field) -> Generator[None, None, None]:
        todo: list[_Todo] = ["{"]
        for pair in fields(self._data, kvlist.start, kvlist.stop):
            if pair.number == KeyValueList.VALUES_FIELD_NUMBER:
                todo += (*self._pair(pair), ",")
            if self._step():
                yield Pause
        self._enclose(todo, "}")

    def _pair(self, pair: Field) -> Iterator[_Todo]:
        key, value = '""', (pair.stop, pair.stop)
        for part in fields(self._data, pair.start, pair.stop):
            if part.number == KeyValue.KEY_FIELD_NUMBER:
                key = self._string(part)
            elif part.number == KeyValue.VALUE_FIELD_NUMBER:
                value = (part.start, part.stop)
        return iter((f"{key}:", value))

    def _enclose(self, todo: list[_Todo], close: str) -> None:
        """Queue what lies between two brackets; its last separator gives way to the closing one."""
        if len(todo) > 1:
            todo[-1] = close
        else:
            todo.append(close)
        self._todo += reversed(todo)

    def _scalar(self, field: Field) -> str:
        raw = self._data[field.start : field.stop]
        if field.number == AnyValue.STRING_VALUE_FIELD_NUMBER:
            return self._string(field)
        if field.number == AnyValue.BYTES_VALUE_FIELD_NUMBER:
            return json.dumps(base64.b64encode(raw).decode())
        if field.number == AnyValue.DOUBLE_VALUE_FIELD_NUMBER and len(raw) == struct.calcsize("<d"):
            return json.dumps(double(struct.unpack("<d", raw)[0]))
        if field.number == AnyValue.BOOL_VALUE_FIELD_NUMBER:
            return "true" if any(byte & 0x7F for byte in raw) else "false"
        if field.number == AnyValue.INT_VALUE_FIELD_NUMBER:
            number, _ = varint(raw, 0, len(raw))
            return str(number - 2 * _INT64 if number >= _INT64 else number)
        return "null"

    def _string(self, field: Field) -> str:
        raw = self._data[field.start : field.stop]
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            self._broken += 1
            text = raw.decode("utf-8", "replace")
        return json.dumps(text, ensure_ascii=False)
