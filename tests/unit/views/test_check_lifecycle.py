"""The collector's own records, ends and levels: every broken promise is named, no kept one is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentrund.model.run_state import RunState
from agentrund.views.check_lifecycle import check_record
from support.records import Book
from support.run_root import seed_book


def wrong(book):
    """What is wrong with each record of a book that has anything wrong: seq and message."""
    state, found = RunState(book.run_id), []
    for record in book.records:
        found += [(record.seq, message) for message in check_record(record, state)]
        state.apply(record)
    return found


def test_a_sound_story_has_nothing_wrong():
    assert wrong(seed_book()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "x"}, "{} has a name; it must be null"),
        ({"parent_seq": 1}, "{} has a parent_seq; it must be null"),
        ({"src": {"k": "sock", "id": "a1", "n": 1}}, "{} has src; it is the collector's own"),
    ],
)
@pytest.mark.parametrize("kind", ["run.start", "run.resume", "source.join", "source.exit"])
def test_the_collectors_own_records(kind, change, message):
    book = Book()
    book.start()
    book.add("source.join", None, {"source": "m"})
    book.die(source="m")
    book.die()
    book.resume()
    book.records = [replace(r, **change) if r.type == kind else r for r in book.records]
    assert {message.format(kind)} == {found for _, found in wrong(book)}


def test_an_end_from_a_sender_has_src():
    book = Book()
    book.start()
    book.add("run.end", None, status="ok", src={"k": "sock", "id": "a1", "n": 1})
    assert wrong(book) == []


def test_who_comes_when_all_is_over_is_marked_so():
    book = Book()
    book.start()
    book.die()
    book.add("source.join", None, {"source": "m"}, src={"k": "otlp", "id": "m", "late": True})
    assert wrong(book) == []
    assert book.state.live_sources() == []


@pytest.mark.parametrize(
    ("cause", "status", "sound"),
    [
        ("bye", "ok", True),
        ("run.end", "ok", True),
        ("bye", "error", False),
        ("run.end", None, False),
        ("process exited", "error", True),
        ("process exited", "ok", False),
        ("bye ", "ok", False),
        ({"ref": "blobs/12345678.txt", "preview": "x", "bytes": 9000}, "error", True),
        (None, "ok", False),
    ],
)
def test_an_exit_is_ok_for_the_two_clean_causes_only(cause, status, sound):
    book = Book()
    book.start()
    book.add("source.exit", None, {"source": "a1", "cause": cause, "open": []}, status=status)
    assert (wrong(book) == []) == sound


def test_an_end_after_the_end_must_be_late():
    book = Book()
    book.start()
    book.end()
    book.end("failed", at=5)
    assert wrong(book) == [(3, "run.end of attempt 1, which had ended (ok), is not marked late")]
    book.records[2].src = {"k": "sock", "id": "a1", "n": 2, "late": True}
    assert wrong(book) == []


def test_an_end_after_a_crash_must_be_late_and_the_next_attempt_may_end():
    book = Book()
    book.start()
    book.die()
    book.end()
    assert wrong(book) == [(3, "run.end of attempt 1, which had ended (crashed), is not marked late")]
    del book.records[2]
    book.resume()
    book.end()
    assert wrong(book) == []


@pytest.mark.parametrize(
    ("level", "status", "sound"),
    [
        ("info", "INFO", True),
        ("info", "info", False),
        ("Warning", "WARNING", True),
        ("ß", "SS", True),
        ("info", None, False),
        (None, "ERROR", True),
        (20, None, True),
    ],
)
def test_a_logs_status_is_its_level_in_upper_case(level, status, sound):
    book = Book()
    book.start()
    book.add("log", "main", {"level": level, "message": "x"}, status=status)
    assert (wrong(book) == []) == sound
