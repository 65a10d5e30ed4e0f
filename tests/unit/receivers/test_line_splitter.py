"""Lines come out the same however the bytes were cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agentrund.receivers.line_splitter import TOO_LONG, LineSplitter

LIMIT = 20
streams = st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"x"))).map(b"\n".join)


def split_at(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(streams, st.lists(st.integers(0, 10_000), max_size=20))
def test_cutting_changes_nothing(data, cuts):
    splitter = LineSplitter(LIMIT)
    lines = [line for part in split_at(data, cuts) for line in splitter.feed(part)]
    whole = data.split(b"\n")
    expected = [line if len(line) <= LIMIT else TOO_LONG for line in whole[:-1]]
    assert lines == [line for line in expected if line is TOO_LONG or line.strip()]
    assert splitter.partial == bool(whole[-1])


def test_a_line_over_the_limit_does_not_hurt_the_next():
    splitter = LineSplitter(4)
    assert splitter.feed(b"12345") == []
    assert splitter.feed(b"6789\nab\n") == [TOO_LONG, b"ab"]
    assert splitter.feed(b"abcd\nabcde\n") == [b"abcd", TOO_LONG]
