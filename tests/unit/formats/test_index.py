"""index.jsonl: rows in slots of fixed size."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.formats import index
from agentrund.formats.derive import derive
from agentrund.model.errors import Damaged
from support.records import Book
from support.run_root import seed_book

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


def test_the_row_of_the_seeds_story():
    row = derive(seed_book().records).row
    assert tuple(row) == index.KEYS
    assert row == {
        "run_id": "20260830_142233_a1b2",
        "session_id": "sess_kaggle_eda_7c",
        "started_at": "2026-08-30T14:22:33.000+05:45",
        "status": "failed",
        "active_sec": 76.62,
        "cost_usd": 0.0205,
        "llm_calls": 2,
        "tool_calls": 7,
        "errors": 2,
        "framework": "langgraph",
        "model": "claude-sonnet-5",
        "last_error": "RuntimeError: executor gave up after 2 attempts",
    }


def test_a_crashed_runs_last_error_is_the_cause():
    book = Book()
    book.start()
    book.add("tool.error", "t", {"error_type": "E", "error": "x"})
    book.die("process exited: exit code 3")
    assert derive(book.records).row["last_error"] == "process exited: exit code 3"


def test_a_row_can_be_searched_for_as_bytes():
    row = index.starting_row("20260830_142233_a1b2", 'a"status":"running"', "2026", {})
    data = index.encode_row(row, index.slot_size(row))
    assert data.startswith(b'{"run_id":"20260830_142233_a1b2",')
    assert data.count(b'"status":"running"') == 1


@given(TEXT, TEXT, TEXT, TEXT, st.integers(0, 10**9))
def test_whatever_goes_wrong_fits_the_slot_made_at_the_start(session, framework, model, error, calls):
    row = index.starting_row(
        "20260830_142233_a1b2", session, "x" * 29, {"framework": framework, "model": model}
    )
    size = index.slot_size(row)
    book = Book()
    book.start(session_id=session, framework=framework, model=model)
    book.add("error", None, {"error_type": "E", "error": error, "cost_usd": 99_999.123456})
    end = derive(book.records).row | {"status": "crashed", "llm_calls": calls, "active_sec": 123_456_789.12}
    data = index.encode_row(end, size)
    assert len(data) == size
    assert index.parse_line(data) == end


def test_a_long_last_error_points_at_its_event():
    book = Book()
    book.start()
    book.add("error", None, {"error_type": "E", "error": "\x00" * 100 + "é" * 500})
    got = derive(book.records).row["last_error"]
    assert got.startswith("E: \x00")
    assert got.endswith(" … #0002")
    assert len(orjson.dumps(got)) <= 160


def test_a_row_that_does_not_fit_is_refused():
    row = index.starting_row("20260830_142233_a1b2", "s" * 1000, "2026", {})
    with pytest.raises(ValueError, match="does not fit"):
        index.encode_row(row, 512)


def test_a_blanked_slot_is_nobodys():
    assert index.parse_line(b"    \n") is None
    assert index.parse_line(b"\n") is None


@pytest.mark.parametrize("line", [b'{"run_id":\n', b"[]\n", b"{}\n", b'{"run_id":1}\n', b"\xff\n", b"\x00\n"])
def test_anything_else_is_damage(line):
    with pytest.raises(Damaged) as caught:
        index.parse_line(line, path="x/index.jsonl", offset=77)
    assert (caught.value.path, caught.value.offset) == ("x/index.jsonl", 77)
