"""The lives of a session that its client's log records tell (R8), also over a restart of the collector."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentrund.model import kinds
from agentrund.model.otlp import MappedLog
from agentrund.sequencer.otlp_runs import OtlpRuns
from agentrund.sequencer.otlp_stored import StoredItems
from agentrund.sequencer.trace_hold import HOLD_S
from support.claude_story import (
    CALL,
    EXITED,
    KILLED,
    STORY,
    calls,
    decision,
    numbered,
    prompt,
    request,
    result,
    shown,
    turn_spans,
)
from support.client_records import claude, gemini
from support.otlp_build import T0
from support.otlp_restart import restore
from support.otlp_world import World


@pytest.fixture
def world() -> World:
    return World()


# -- R8 --------------------------------------------------------------------------------------------


def first_life() -> list[MappedLog]:
    return numbered(prompt(), request(), decision())


def second_life() -> list[MappedLog]:
    return numbered(prompt(21.0, "p2"), claude("api_request", CALL | {"prompt.id": "p2"}, at=23.0))


def test_two_lives_in_one_request_are_two_attempts(world):
    lives = [*first_life(), *second_life()]
    for i, record in enumerate(lives):
        record.i = i
    world.take(*lives)
    assert [a.outcome for a in world.run.machine.state.attempts] == ["crashed", "running"]
    assert [r.attempt for r in world.run.of(kinds.TOOL_CALL)] == [1]


@pytest.mark.parametrize("pid", [1, None])
def test_a_sender_that_counts_anew_is_a_new_process(world, pid):
    world.take(*first_life(), pid=pid)
    world.take(*second_life(), pid=pid)
    attempts = world.run.machine.state.attempts
    assert [a.outcome for a in attempts] == ["crashed", "running"]
    assert [s["name"] for s in world.run.open_listed()] == ["claude-code", "Bash"]
    world.take(
        claude("tool_decision", {"tool_name": "X", "tool_use_id": "t2", "decision": "accept"}), pid=pid
    )
    assert world.run.records[-1].attempt == 2


def test_another_process_that_counts_anew_too(world):
    world.take(*first_life(), pid=1)
    world.take(*second_life(), pid=2)
    assert [a.outcome for a in world.run.machine.state.attempts] == ["crashed", "running"]


def test_what_the_first_life_left_open_is_not_open_in_the_second(world):
    world.take(*first_life())
    world.take(*second_life())
    world.exit(cause=EXITED)
    world.pass_time(3)
    assert [a.outcome for a in world.run.machine.state.attempts] == ["crashed", "ok"]


def test_a_session_that_had_ended_and_goes_on_in_the_same_process_is_resumed(world):
    world.take(*numbered(prompt(), request()))
    world.pass_time(1800)
    assert world.run.status == "ok"
    world.take(*numbered(prompt(2000.0, "p2"), first=20))
    assert world.run.types()[-2:] == [kinds.RUN_RESUME, kinds.AGENT_START]


def test_what_an_earlier_process_told_is_of_no_weight_when_it_comes_after(world):
    world.take(*second_life())
    world.take(*first_life())
    world.exit(cause=EXITED)
    world.pass_time(3)
    (attempt,) = world.run.machine.state.attempts
    assert attempt.outcome == "ok"
    assert [r.name for r in world.run.of(kinds.TOOL_CALL)] == ["Bash"]


def test_what_is_late_of_a_life_that_is_over_does_not_begin_another(world):
    world.take(*first_life())
    world.take(*second_life())
    world.take(*numbered(claude("compaction", at=2.5), first=3))
    world.take(*numbered(claude("compaction", at=24.0), first=2))
    assert len(world.run.machine.state.attempts) == 2


# -- after a restart -------------------------------------------------------------------------------


def restart(world: World) -> None:
    world.runs = OtlpRuns()
    world.runs.stored = StoredItems(range(1, world._rq + 1))
    for run in world.all_runs:
        restore(world.runs, run.records, T0 + world.now, ended=not run.machine.state.is_open)


def test_a_call_goes_on_over_a_restart(world):
    world.take(*numbered(prompt(), request(), decision()))
    restart(world)
    world.take(result())
    (closed,) = world.run.of(kinds.TOOL_RESULT)
    assert closed.parent_seq == world.run.of(kinds.TOOL_CALL)[0].seq
    world.exit(cause=EXITED)
    world.pass_time(3)
    assert world.run.status == "ok"
    assert len(world.run.of(kinds.AGENT_END)) == 1


def test_an_answer_finds_its_request_over_a_restart(world):
    world.take(gemini("user_prompt", at=1.0))
    world.take(gemini("api_request", {"model": "m"}, at=2.0))
    restart(world)
    world.take(gemini("api_response", {"model": "m", "duration_ms": 3000}, at=5.0))
    assert shown(world) == [kinds.AGENT_START, kinds.LLM_PROMPT, kinds.LLM_RESPONSE]


def test_a_call_that_was_open_is_open_after_a_restart(world):
    world.take(*numbered(prompt(), decision()))
    restart(world)
    world.exit(cause=KILLED)
    world.pass_time(3)
    assert world.run.status == "crashed"


def test_which_signal_is_the_account_is_known_after_a_restart(world):
    world.take(*numbered(prompt(), request(), decision(), result()))
    restart(world)
    world.take(*turn_spans())
    world.pass_time(HOLD_S)
    assert calls(world) == sorted([*STORY, kinds.AGENT_END])
    assert len([r for r in world.run.of(kinds.LOG) if r.payload.get("text") == "done"]) == 1


def test_that_it_is_the_spans_too(world):
    world.take(*turn_spans())
    world.pass_time(HOLD_S)
    restart(world)
    world.take(*numbered(prompt(), request(), decision(), result()))
    assert calls(world) == sorted([*STORY, kinds.AGENT_END])


def test_a_sender_that_counts_anew_is_known_after_a_restart(world):
    world.take(*first_life())
    restart(world)
    world.take(*second_life())
    assert [a.outcome for a in world.run.machine.state.attempts] == ["crashed", "running"]


def test_what_a_life_before_left_open_is_not_open_after_a_restart_either(world):
    world.take(*first_life())
    world.take(*second_life())
    restart(world)
    world.take(claude("compaction", at=30.0))
    world.exit(cause=EXITED)
    world.pass_time(3)
    assert [a.outcome for a in world.run.machine.state.attempts] == ["crashed", "ok"]


def test_that_a_step_is_of_an_earlier_process_is_known_after_a_restart(world):
    world.take(*second_life())
    world.take(*first_life())
    restart(world)
    world.exit(cause=EXITED)
    world.pass_time(3)
    assert world.run.status == "ok"


def test_a_request_that_is_replayed_tells_nothing_again(world):
    sent = [prompt(), request(), decision(), claude("compaction", {"prompt.id": "p1"}, at=6.0)]
    world.take(*numbered(*sent))
    before = len(world.run.records)
    restart(world)
    world._rq = 0
    world.take(*numbered(*(replace(r) for r in sent)))
    assert len(world.run.records) == before
    assert world.executor.done == [1, 1]


# -- long silences ---------------------------------------------------------------------------------


def test_a_tool_that_takes_hours_is_one_call(world):
    world.take(*first_life())
    world.pass_time(3 * 3600)
    world.pass_time(1)
    world.take(*numbered(result(4 * 3600.0), first=3))
    assert [len(world.run.of(kind)) for kind in (kinds.TOOL_CALL, kinds.TOOL_RESULT)] == [1, 1]


def test_who_is_killed_after_hours_in_a_tool_has_crashed(world):
    world.take(*first_life())
    world.pass_time(3 * 3600)
    world.exit(cause=KILLED)
    world.pass_time(3)
    assert world.run.status == "crashed"
    assert [s["name"] for s in world.run.open_listed()] == ["claude-code", "Bash"]


def test_a_sender_that_counts_anew_after_hours_is_a_new_process(world):
    world.take(*first_life())
    world.pass_time(3 * 3600)
    world.take(*second_life())
    assert [a.outcome for a in world.run.machine.state.attempts] == ["crashed", "running"]
