from __future__ import annotations

import base64

import pytest

from agentrund.receivers.decode.otlp_values import Values
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
    assert Values().value(message) == read
    assert finish(Values().value_in_steps(message, 1))[0] == read


def test_many_values_are_read_in_steps():
    pairs = build.key_values({str(n): [n] * 10 for n in range(10)})
    values, pauses = finish(Values().attributes_in_steps(pairs, 5))
    assert values == Values().attributes(pairs)
    assert pauses == 10 * 2 + 2


def test_repeated_keys_are_counted_at_every_level():
    pairs = [*build.key_values({"k": 1, "in": [{"a": 1}]}), *build.key_values({"k": 2})]
    pairs[1].value.array_value.values[0].kvlist_value.values.extend(build.key_values({"a": 3}))
    for read in (Values(), in_steps := Values()):
        found = finish(read.attributes_in_steps(pairs, 1))[0] if read is in_steps else read.attributes(pairs)
        assert (found, read.repeated) == ({"k": 2, "in": [{"a": 3}]}, 2)
