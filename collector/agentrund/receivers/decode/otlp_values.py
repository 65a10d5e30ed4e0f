"""OTLP attribute values (AnyValue, KeyValue) as JSON values.

No value is ``None``, bytes are base64 text, and the numbers JSON does not have are their names.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Generator, Sequence
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from agentrund.model.event import Json

Pause = None
"""Yielded where the reader may let others run."""

LARGE: Final = 1 << 16
"""An item of more bytes than this is read in steps of its own."""
STEP: Final = 256
"""Values between two pauses."""
TEMPORALITIES: Final = {1: "delta", 2: "cumulative"}
"""What a metric's value counts from: the export before it, or its start. By AggregationTemporality."""


class Values:
    """Reads the values of one item, and counts what is lost on the way."""

    def __init__(self) -> None:
        self.repeated = 0
        """Keys that an object named again: the last value counts."""

    def notes(self) -> list[str]:
        """What was lost, in words."""
        return [f"repeated keys, the last value kept: {self.repeated}"] if self.repeated else []

    def attributes(self, pairs: Sequence[KeyValue]) -> Json:
        """The attributes as an object."""
        found = {pair.key: self.value(pair.value) for pair in pairs}
        self.repeated += len(pairs) - len(found)
        return found

    def value(self, value: AnyValue) -> Any:
        """One value."""
        kind = value.WhichOneof("value")
        if kind == "string_value":
            return value.string_value
        if kind == "array_value":
            return [self.value(item) for item in value.array_value.values]
        if kind == "kvlist_value":
            return self.attributes(value.kvlist_value.values)
        return _scalar(value, kind)

    def attributes_of(self, pairs: Sequence[KeyValue], size: int) -> Generator[None, None, Json]:
        """As ``attributes``, of an item of ``size`` bytes: pausing where it is large."""
        return (yield from self.attributes_in_steps(pairs, STEP)) if size > LARGE else self.attributes(pairs)

    def attributes_in_steps(self, pairs: Sequence[KeyValue], step: int) -> Generator[None, None, Json]:
        """As ``attributes``, pausing after every ``step`` values at each level."""
        found: Json = {}
        for n, pair in enumerate(pairs, 1):
            found[pair.key] = yield from self.value_in_steps(pair.value, step)
            if n % step == 0:
                yield Pause
        self.repeated += len(pairs) - len(found)
        return found

    def value_in_steps(self, value: AnyValue, step: int) -> Generator[None, None, Any]:
        """As ``value``, pausing after every ``step`` values at each level."""
        kind = value.WhichOneof("value")
        if kind == "kvlist_value":
            return (yield from self.attributes_in_steps(value.kvlist_value.values, step))
        if kind != "array_value":
            return self.value(value)
        found: list[Any] = []
        for n, item in enumerate(value.array_value.values, 1):
            found.append((yield from self.value_in_steps(item, step)))
            if n % step == 0:
                yield Pause
        return found


def double(value: float) -> float | str:
    """A double, or the name of one that JSON cannot write."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _scalar(value: AnyValue, kind: str | None) -> Any:
    if kind is None:
        return None
    scalar = getattr(value, kind)
    if kind == "double_value":
        return double(scalar)
    if kind == "bytes_value":
        return base64.b64encode(scalar).decode()
    return scalar
