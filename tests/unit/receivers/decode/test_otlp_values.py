from __future__ import annotations

import base64

import pytest

from agentrund.receivers.decode import otlp_values
from support import otlp_build as build

VALUES = [
    (None, None),
    ("text", "text"),
    ("", ""),
    (True, True),
    (-(1 << 63), -(1 << 63)),
    (0, 0),
    (1.5, 1.5),
    (float("nan"), "NaN"),
    (float("inf"), "Infinity"),
    (float("-inf"), "-Infinity"),
    (b"\x00\xff", base64.b64encode(b"\x00\xff").decode()),
    ([], []),
    ({}, {}),
    ([1, [2, {"a": None}]], [1, [2, {"a": None}]]),
    ({"a": {"b": [b"x"]}}, {"a": {"b": ["eA=="]}}),
]


def finish(steps):
    """The result of a reader that pauses, and how often it did."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


@pytest.mark.parametrize(("sent", "read"), VALUES)
def test_every_kind_of_value(sent, read):
    message = build.any_value(sent)
    assert otlp_values.any_value(message) == read
    assert finish(otlp_values.value_in_steps(message, 1))[0] == read


def test_many_values_are_read_in_steps():
    pairs = build.key_values({str(n): [n] * 10 for n in range(10)})
    values, pauses = finish(otlp_values.attributes_in_steps(pairs, 5))
    assert values == otlp_values.attributes(pairs)
    assert pauses == 10 * 2 + 2
