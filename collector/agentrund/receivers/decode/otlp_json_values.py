"""OTLP/JSON's attribute values (AnyValue, KeyValue) as plain JSON values, and the fields around them.

As ``otlp_values`` makes them of protobuf. The encoding is protobuf's JSON with OTLP's changes: 64-bit
integers are strings or numbers, ids are hex, enums are integers (names are read too), keys nobody knows are
passed over. https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, Final

from agentrund.model.event import Json
from agentrund.receivers.decode.otlp_values import double
from agentrund.receivers.decode.protobuf_wire import Malformed
from agentrund.receivers.decode.strict_json import encode

LEVELS_MAX: Final = 100
"""How deep a value may be nested: with the payload around it below what readers of a trace can take."""
_UINT64: Final = 1 << 64
_INT64: Final = 1 << 63


class JsonValues:
    """Reads the values of one item, and counts what is lost on the way."""

    def __init__(self) -> None:
        self.repeated = 0
        """Keys that an object named again: the last value counts."""
        self.folded = 0
        """Values nested too deeply, kept as JSON text."""

    def notes(self) -> list[str]:
        """What was lost, in words."""
        notes = []
        if self.repeated:
            notes.append(f"repeated keys, the last value kept: {self.repeated}")
        if self.folded:
            notes.append(f"values nested too deeply, kept as JSON text: {self.folded}")
        return notes

    def attributes(self, pairs: list[Any], levels: int = LEVELS_MAX) -> Json:
        """The attributes as an object. Raises Malformed."""
        found: Json = {}
        for pair in pairs:
            found[text(pair, "key")] = self.value(pair.get("value"), levels)
        self.repeated += len(pairs) - len(found)
        return found

    def value(self, value: Any, levels: int = LEVELS_MAX) -> Any:
        """One value; None and an empty object are none. Raises Malformed."""
        if isinstance(value, str):
            return value  # it was too deep for the parser, and is its own text
        if value is None:
            return None
        if not isinstance(value, dict):
            raise Malformed(f"a value is {_name(value)}, not an object")
        for key, read in _SCALARS.items():
            if value.get(key) is not None:
                return read(value[key])
        return self._nested(value, levels)

    def _nested(self, value: Json, levels: int) -> Any:
        for key in ("arrayValue", "kvlistValue"):
            inner = value.get(key)
            if inner is None:
                continue
            if levels == 0:
                self.folded += 1
                return encode(inner).decode()
            values = items(inner, "values", of_kind=object)
            if key == "kvlistValue":
                return self.attributes(values, levels - 1)
            return [self.value(item, levels - 1) for item in values]
        return None


def text(of: Any, key: str) -> str:
    """A string field, "" where it is absent. Raises Malformed."""
    value = _fields(of).get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Malformed(f"`{key}` is {_name(value)}, not a string")
    return value


def items(of: Any, key: str, *, of_kind: type = dict) -> list[Any]:
    """A repeated field, [] where it is absent. Raises Malformed where it is no list of ``of_kind``."""
    value = _fields(of).get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, of_kind) for item in value):
        raise Malformed(f"`{key}` is no list of {'objects' if of_kind is dict else 'values'}")
    return value


def whole(of: Any, key: str, names: Callable[[str], int] | None = None, *, bits: int = 64) -> int:
    """An unsigned integer field, 0 where it is absent; ``names`` reads an enum's. Raises Malformed."""
    value = _fields(of).get(key)
    if value is None:
        return 0
    try:
        named = names is not None and isinstance(value, str) and not value.isdecimal()
        number = names(value) if names and named else _integer(value)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << bits:
        raise Malformed(f"`{key}` is no number that it can be")
    return number


def integer(of: Any, key: str) -> int | None:
    """A signed integer field, None where it is absent. Raises Malformed."""
    value = _fields(of).get(key)
    return None if value is None else _int(value, key)


def number(value: Any, key: str) -> float | str | None:
    """A double, or the name of one that JSON cannot write; None for null. Raises Malformed."""
    return None if value is None else _double(value, key)


def identifier(of: Any, key: str) -> bytes:
    """An id as bytes, b"" where it is absent. Raises Malformed where it is not hex."""
    value = text(of, key)
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise Malformed(f"`{key}` is not hexadecimal") from None


def _fields(of: Any) -> Json:
    if not isinstance(of, dict):
        raise Malformed(f"{_name(of)} where an object belongs")
    return of


def _name(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "a string", type(None): "null"}.get(
        type(value), "a number"
    )


def _integer(value: Any) -> int:
    """An integer written as one, as a string, or as a double without a fraction. Raises ValueError."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and len(value) <= len(str(_UINT64)):
        return int(value)
    if type(value) is int:
        return value
    raise ValueError


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Malformed(f"`stringValue` is {_name(value)}")
    return value


def _int(value: Any, key: str = "intValue") -> int:
    try:
        number = _integer(value)
    except ValueError:
        raise Malformed(f"`{key}` is no integer") from None
    if not -_INT64 <= number < _INT64:
        raise Malformed(f"`{key}` has more than 64 bits")
    return number


def _double(value: Any, key: str = "doubleValue") -> float | str:
    try:
        return double(float(value))
    except (TypeError, ValueError, OverflowError):
        raise Malformed(f"`{key}` is no number") from None


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Malformed("`boolValue` is neither true nor false")
    return value


def _bytes(value: Any) -> str:
    """Base64, in either alphabet and with or without its padding, as ``otlp_values`` writes it."""
    try:
        plain = _text(value).replace("-", "+").replace("_", "/").rstrip("=")
        return base64.b64encode(base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)).decode()
    except binascii.Error:
        raise Malformed("`bytesValue` is not base64") from None


_SCALARS: Final[dict[str, Callable[[Any], Any]]] = {
    "stringValue": _text,
    "intValue": _int,
    "doubleValue": _double,
    "boolValue": _bool,
    "bytesValue": _bytes,
}
