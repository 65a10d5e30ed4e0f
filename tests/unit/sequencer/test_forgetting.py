"""What is remembered of runs and traces that are over, and for how long."""

from __future__ import annotations

import pytest

from agentrund.model.otlp import SpanKind
from agentrund.sequencer import forgetting, otlp_runs
from agentrund.sequencer.otlp_commands import BY_SESSION, RunKey
from agentrund.sequencer.trace_hold import HOLD_S
from support.otlp_build import TRACE, hex_id, mapped, mapped_log
from support.otlp_world import World, program

LLM = SpanKind.LLM
OTHER_TRACE = "22" * 16


@pytest.fixture
def world() -> World:
    return World()


def test_what_has_ended_long_ago_is_forgotten(world):
    for n in range(5):
        world.take(mapped(1, trace=f"{n + 1:032x}", session=f"s{n}"))
        world.pass_time(1)
    world.exit(cause="process exited: exit code 0")
    world.pass_time(20)
    assert len(world.runs.traces) == len(world.runs.runs) == 5
    world.pass_time(4000)
    world.pass_time(100)
    assert world.runs.traces == {}
    assert world.runs.runs == {}
    assert world.runs.sessions == {}


def test_a_look_at_many_traces_lets_others_have_their_turn(world, monkeypatch):
    monkeypatch.setattr(forgetting, "AT_ONCE", 10)
    for n in range(100):
        world.take(mapped(2, 1, trace=f"{n + 1:032x}", session="s"))
    looks = [part for part in world.runs.tick(world.now) if not part]
    assert len(looks) >= 2 * 100 / 10, "what is due, and what is held"
    sweep = list(world.runs.tick(world.now + 70))
    assert len(sweep) >= 2 * 100 / 10 + 4 * 100 / 10, "and what is to be forgotten"


def test_a_long_session_does_not_grow_with_its_traces(world):
    for n in range(20):
        world.take(mapped(1, trace=f"{n + 1:032x}", session="s", start=n * 1000, end=n * 1000 + 1))
        world.pass_time(1000)
    assert len(world.runs.traces) <= 6
    run = next(iter(world.runs.runs.values()))
    assert len(run.trees) <= 6
    assert run.status() == "ok"


def test_an_unfinished_trace_is_not_forgotten(world):
    world.take(mapped(2, 1, LLM, session="s"))
    for _ in range(5):
        world.pass_time(1000)
    assert world.run.status == "running"
    assert world.runs.traces[TRACE].tree.holes() == {hex_id(1): "prog"}


def test_ended_runs_are_remembered_in_a_bounded_number(world, monkeypatch):
    monkeypatch.setattr(forgetting, "ENDED_RUNS", 10)
    monkeypatch.setattr(otlp_runs, "_SWEEP_GROWTH", 5)
    for n in range(40):
        program_n = program(f"p{n}")
        world.take(mapped(1, trace=f"{n + 1:032x}", session=f"s{n}", resource=program_n), pid=n + 1)
        world.exit(n + 1, "process exited: exit code 0")
        world.pass_time(3)
    assert [run.status for run in world.all_runs] == ["ok"] * 40
    kept = (world.runs.traces, world.runs.runs, world.runs.sessions, world.runs.producers)
    assert all(len(found) <= 25 for found in kept)
    assert RunKey(BY_SESSION, "s39") in world.runs.runs


def test_log_records_without_a_trace_leave_nothing_once_their_session_has_ended(world, monkeypatch):
    monkeypatch.setattr(otlp_runs, "_SWEEP_GROWTH", 5)
    for n in range(40):
        world.take(mapped_log(0, trace=None, session=f"s{n}", ends_session=n > 0))
        world.pass_time(HOLD_S + 1)
    assert [run.status for run in world.all_runs] == ["running"] + ["ok"] * 39
    assert len(world.runs.traces) <= 10
    assert world.runs.traces["process:prog/s0"]


def test_places_of_spans_are_bounded_and_what_is_over_goes_first(world, monkeypatch):
    monkeypatch.setattr(otlp_runs, "SPANS", 100)
    world.take(mapped(2, 1, LLM, session="open"))
    for n in range(60):
        spans = [mapped(1, trace=f"{n + 1:032x}", session="s"), mapped(2, 1, trace=f"{n + 1:032x}")]
        world.take(*spans)
        world.pass_time(1)
    assert sum(len(trace.tree) for trace in world.runs.traces.values()) <= 100
    assert world.runs.traces[TRACE].tree.holes() == {hex_id(1): "prog"}
    assert len(world.runs.traces[TRACE].tree) == 1
