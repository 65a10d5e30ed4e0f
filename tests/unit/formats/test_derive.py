"""The derived files: the same from living, from reading back, anywhere and in bounded memory."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import given, settings

from agentrund.formats import trace_jsonl
from agentrund.formats.agent_logs import LogRenderer
from agentrund.formats.derive import Deriver, derive
from agentrund.model.event import Record
from agentrund.model.run_state import RunState
from agentrund.sequencer.run import RunMachine
from support.machine_plays import Player, fixed_iso, plays
from support.records import Book, iso
from support.run_root import seed_book


def test_reading_the_trace_back_gives_the_same_bytes():
    book = seed_book()
    again = [trace_jsonl.decode(trace_jsonl.encode(record)) for record in book.records]
    assert derive(again) == derive(book.records)


def test_the_time_zone_of_the_reader_is_nothing_to_it(monkeypatch):
    here = derive(seed_book().records)
    monkeypatch.setenv("TZ", "America/Sao_Paulo")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    time.tzset()
    try:
        assert derive(seed_book().records) == here
    finally:
        monkeypatch.undo()
        time.tzset()


def test_no_records_make_a_run_that_is_running():
    derived = derive([])
    assert derived.row["status"] == "running"
    assert derived.outline


@given(plays)
@settings(max_examples=50)
def test_any_history_of_the_machine_has_derived_files_and_a_transcript(history):
    player = Player(RunMachine(RunState("20260101_000000_0001"), fixed_iso))
    steps = [step for play in history for step in player.play(play)]
    state = RunState("20260101_000000_0001")
    lived, read = LogRenderer(), LogRenderer()
    for step in steps:
        again = trace_jsonl.decode(trace_jsonl.encode(step.record))
        # The collector renders after the state has gone on; a rebuild renders as it goes.
        assert lived.render(step.record, step.change, player.machine.state) == read.render(
            again, state.apply(again), state
        )
    first = derive(step.record for step in steps)
    assert first == derive(trace_jsonl.decode(trace_jsonl.encode(step.record)) for step in steps)


def many(count):
    """An agent that loops: one model call and one of a few tools a turn, every tenth failing."""
    book = Book()
    book.start()
    yield book.records[0]
    yield Record(book.run_id, 2, 1, 1e9, iso(1e9), "agent.start", "a", None, None, None, {}, None)
    for seq in range(3, count, 4):
        turn = (
            ("llm.prompt", "m", 2, None, {"tokens_in": 10, "text": f"turn {seq}"}),
            ("llm.response", "m", seq, "ok", {"tokens_out": 10}),
            ("tool.call", f"t{seq % 7}", 2, None, {"args": {"n": seq}}),
            ("tool.error", f"t{seq % 7}", seq + 2, "error", {"error_type": "E", "error": f"{seq}"})
            if seq % 10 == 3
            else ("tool.result", f"t{seq % 7}", seq + 2, "ok", {}),
        )
        for number, (kind, name, parent, status, payload) in enumerate(turn):
            ts = 1e9 + seq + number
            yield Record(
                book.run_id, seq + number, 1, ts, "2026-08-30T14:22:33.000+05:45", kind, name, parent, status,
                None if status is None else 1000, payload, None,
            )  # fmt: skip


@pytest.mark.slow
def test_memory_does_not_grow_with_the_run():
    def peak(count):
        tracemalloc.start()
        deriver = Deriver("20260830_142233_a1b2")
        for record in many(count):
            deriver.feed(record)
        deriver.result()
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    few, more = peak(20_000), peak(80_000)
    assert more < few * 2
