"""Values as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.service import settings_types as kinds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5min", 300),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86400),
        ("250ms", 0.25),
        ("1.5s", 1.5),
        ("2 h", 7200),
    ],
)
def test_times(text, seconds):
    assert kinds.parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "5M", "5mins", "-1s", "1e3s", "s", 5, 5.0, None, True])
def test_no_times(text):
    with pytest.raises(ValueError):
        kinds.parse_time(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [("64MiB", 64 << 20), ("8kB", 8000), ("8192", 8192), (7, 7), ("1 GiB", 1 << 30), ("9B", 9)],
)
def test_sizes(text, count):
    assert kinds.parse_size(text) == count


@pytest.mark.parametrize("text", ["", "-1", -1, "1.5MiB", "64mib", True, None, 1.0])
def test_no_sizes(text):
    with pytest.raises(ValueError):
        kinds.parse_size(text)


@given(st.integers(0, 1 << 45))
def test_size_shown_reads_back(count):
    assert kinds.parse_size(kinds.show_size(count)) == count


@given(st.integers(0, 10**7))
def test_time_shown_reads_back(seconds):
    assert kinds.parse_time(kinds.show_time(float(seconds))) == seconds
