"""OTLP attribute values (AnyValue, KeyValue) as JSON values.

No value is ``None``, bytes are base64 text, and the numbers JSON does not have are their names.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Generator, Iterable
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from agentrund.model.event import Json

Pause = None
"""Yielded where the reader may let others run."""


def attributes(pairs: Iterable[KeyValue]) -> Json:
    """The attributes as an object; of a repeated key the last value counts."""
    return {pair.key: any_value(pair.value) for pair in pairs}


def any_value(value: AnyValue) -> Any:
    """One value."""
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value
    if kind == "array_value":
        return [any_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return attributes(value.kvlist_value.values)
    return _scalar(value, kind)


def attributes_in_steps(pairs: Iterable[KeyValue], step: int) -> Generator[None, None, Json]:
    """As ``attributes``, pausing after every ``step`` values at each level."""
    out: Json = {}
    for n, pair in enumerate(pairs, 1):
        out[pair.key] = yield from value_in_steps(pair.value, step)
        if n % step == 0:
            yield Pause
    return out


def value_in_steps(value: AnyValue, step: int) -> Generator[None, None, Any]:
    """As ``any_value``, pausing after every ``step`` values at each level."""
    kind = value.WhichOneof("value")
    if kind == "kvlist_value":
        return (yield from attributes_in_steps(value.kvlist_value.values, step))
    if kind != "array_value":
        return any_value(value)
    out: list[Any] = []
    for n, item in enumerate(value.array_value.values, 1):
        out.append((yield from value_in_steps(item, step)))
        if n % step == 0:
            yield Pause
    return out


def _scalar(value: AnyValue, kind: str | None) -> Any:
    if kind is None:
        return None
    scalar = getattr(value, kind)
    if kind == "double_value" and not math.isfinite(scalar):
        return "NaN" if math.isnan(scalar) else "Infinity" if scalar > 0 else "-Infinity"
    if kind == "bytes_value":
        return base64.b64encode(scalar).decode()
    return scalar
