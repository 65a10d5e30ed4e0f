"""What the fold keeps of a run's metadata, and what it makes of foreign values."""

from __future__ import annotations

import pytest

from agentrund.model.run_state import is_number, said
from support.records import Book


def test_metadata_is_kept_through_a_resume_and_newer_values_win():
    book = Book()
    book.start(framework="langgraph", model="claude-sonnet-5", task="explore", tags=["nightly"])
    book.die()
    book.resume(model="claude-opus-5", task=None)
    assert book.state.metadata == {
        "framework": "langgraph",
        "model": "claude-opus-5",
        "task": "explore",
        "tags": ["nightly"],
    }


def test_an_integer_no_float_can_hold_is_not_added_up():
    book = Book()
    book.start()
    book.add("llm.response", "x", {"cost_usd": 10**400})
    book.add("llm.response", "x", {"cost_usd": 0.5})
    assert book.state.totals.reported_usd == 0.5


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, True), (0.5, True), (True, False), ("1", False), (None, False), (10**400, False)],
)
def test_is_number(value, expected):
    assert is_number(value) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("boom", "boom"),
        (None, ""),
        (7, "7"),
        ({"ref": "blobs/1.txt", "preview": "first lines", "bytes": 9000}, "first lines"),
        ({"code": 3}, "{'code': 3}"),
    ],
)
def test_said(value, expected):
    assert said(value) == expected
