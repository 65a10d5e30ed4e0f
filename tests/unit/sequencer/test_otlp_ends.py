from __future__ import annotations

import pytest

from agentrund.model import kinds
from agentrund.model.otlp import Pulse, Resource, SpanKind
from agentrund.sequencer.otlp_ends import GRACE_S, HUNG_UP_S, IDLE_S, QUIET_S
from agentrund.sequencer.trace_hold import HOLD_S, SETTLE_S
from support.otlp_build import PROGRAM, T0, hex_id, mapped, mapped_log
from support.otlp_world import World, program

LLM, TOOL, AGENT, POINT = SpanKind.LLM, SpanKind.TOOL, SpanKind.AGENT, SpanKind.POINT
OTHER_TRACE = "22" * 16
CALL = {"id": "c1", "name": "search", "args": {"q": "x"}}
BOOM = ("ValueError", "boom")
EXIT_0 = "process exited: exit code 0"
KILLED = "process exited: killed by SIGKILL"


@pytest.fixture
def world() -> World:
    return World()


def ended(world: World, cause: str = KILLED, pid: int = 1) -> None:
    world.pass_time(1)
    world.exit(pid, cause)
    world.pass_time(GRACE_S)


def end_of(world: World):
    return world.run.of(kinds.RUN_END)[-1]


def test_a_root_and_the_end_of_its_process_end_a_run_at_its_last_evidence(world):
    world.take(mapped(1, end=3.0))
    world.pass_time(5)
    world.exit(cause=EXIT_0)
    world.pass_time(GRACE_S - 0.25)
    assert world.run.status == "running"
    world.pass_time(0.25)
    end = end_of(world)
    assert (world.run.status, end.ts, end.payload["cause"]) == ("ok", T0 + 3, EXIT_0)
    assert world.run.types()[-2:] == [kinds.SOURCE_EXIT, kinds.RUN_END]


def test_a_root_and_ten_quiet_seconds_end_a_trace(world):
    world.take(mapped(1))
    world.pass_time(SETTLE_S)
    world.pass_time(QUIET_S - 0.25)
    assert world.run.status == "running"
    world.pass_time(0.25)
    assert (world.run.status, end_of(world).payload["cause"]) == ("ok", "quiet")
    world.exit()
    world.pass_time(5)
    assert world.run.types()[-1] == kinds.RUN_END


def test_a_sender_that_was_gone_before_it_was_known_gets_half_a_minute(world):
    world.take(mapped_log(1, trace=None), pid=None, hung_up=True)
    world.pass_time(HOLD_S)
    world.pass_time(HUNG_UP_S - 0.25)
    assert world.run.status == "running"
    world.pass_time(0.25)
    assert (world.run.status, end_of(world).payload["cause"]) == ("ok", "idle")


def test_one_that_was_only_impatient_is_known_when_it_comes_again(world):
    world.take(mapped_log(1, trace=None), pid=None, hung_up=True)
    world.pass_time(1)
    world.take(mapped_log(2, trace=None), pid=1)
    world.pass_time(2 * HUNG_UP_S)
    assert world.run.status == "running"
    ended(world)
    assert world.run.status == "ok"


def test_a_session_is_not_over_for_being_quiet(world):
    world.take(mapped(1, session="s"))
    world.pass_time(60)
    assert world.run.status == "running"


def test_a_failed_root_is_a_failed_run_and_a_handled_tool_fault_is_not(world):
    world.take(mapped(1, fault=BOOM))
    world.take(mapped(1, trace=OTHER_TRACE), mapped(2, 1, TOOL, trace=OTHER_TRACE, fault=BOOM))
    ended(world)
    assert [run.status for run in world.all_runs] == ["failed", "ok"]


@pytest.mark.parametrize(
    ("after", "status"),
    [
        ([], "failed"),
        ([mapped(2, 0, LLM, trace="33" * 16, start=2, end=3)], "ok"),
        ([mapped(2, 0, POINT, trace="33" * 16, start=2, end=3)], "ok"),
        ([mapped(2, 0, LLM, trace="33" * 16, start=-2, end=-1)], "failed"),
    ],
)
def test_bare_calls_fail_when_the_last_of_them_did(world, after, status):
    world.take(mapped(1, 0, LLM, fault=BOOM))
    for item in after:
        world.take(item)
    ended(world)
    assert world.run.status == status


def test_a_sessions_last_failed_call_with_nothing_after_it_is_a_failure(world):
    world.take(mapped(1, session="s"), mapped(2, 1, LLM, start=0.1, end=0.9, fault=BOOM))
    ended(world)
    assert world.run.status == "failed"


def test_a_parent_that_never_came_is_a_crash_that_lists_it(world):
    world.take(mapped(3, 2, LLM))
    ended(world)
    assert world.run.status == "crashed"
    exit_record = world.run.records[-1]
    assert (exit_record.type, exit_record.payload["cause"], exit_record.ts) == (
        kinds.SOURCE_EXIT,
        KILLED,
        T0 + 1,
    )
    assert exit_record.payload["open"] == [{"span": hex_id(2), "missing_parent": True}]


def test_a_tool_call_asked_for_and_never_made_is_a_crash_that_lists_it(world):
    world.take(mapped(1, 0, LLM, requested=[CALL]))
    ended(world)
    assert world.run.status == "crashed"
    assert world.run.open_listed() == [
        {
            "seq": None,
            "type": kinds.TOOL_CALL,
            "name": "search",
            "requested_in": 2,
        }
    ]


def test_a_program_that_exits_by_itself_may_leave_a_tool_call_unmade(world):
    world.take(mapped(1, 0, LLM, requested=[CALL]))
    ended(world, EXIT_0)
    assert world.run.status == "ok"


def test_a_tool_call_asked_for_below_an_ended_root_is_not_open(world):
    world.take(mapped(1), mapped(2, 1, LLM, requested=[CALL]))
    ended(world)
    assert world.run.status == "ok"


@pytest.mark.parametrize(
    "answer",
    [
        mapped(2, 0, TOOL, trace=OTHER_TRACE, name="other", call_id="c1", start=2, end=3),
        mapped(2, 0, TOOL, trace=OTHER_TRACE, name="search", start=2, end=3),
        mapped(2, 0, LLM, trace=OTHER_TRACE, start=2, end=3),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_tool_call_or_a_later_model_call_answers_the_request(world, answer, turned):
    items = [mapped(1, 0, LLM, requested=[CALL]), answer]
    for item in reversed(items) if turned else items:
        world.take(item)
        world.pass_time(1)
    ended(world)
    assert world.run.status == "ok"


def test_a_tool_call_takes_its_arguments_from_the_request_where_it_says_none(world):
    world.take(
        mapped(1),
        mapped(2, 1, LLM, requested=[CALL], start=0.1, end=0.2),
        mapped(3, 1, TOOL, name="search", call_id="c1", start=0.3, end=0.4),
    )
    world.pass_time(1)
    assert world.run.of(kinds.TOOL_CALL)[0].payload["args"] == {"q": "x"}


def test_a_step_that_was_only_begun_is_a_crash_listed_once(world):
    world.take(mapped(1, notice=True))
    ended(world)
    assert world.run.status == "crashed"
    (step,) = world.run.open_listed()
    assert (step["type"], step["seq"]) == (kinds.AGENT_START, 2)


def test_a_process_that_left_nothing_open_and_no_root_has_ended(world):
    world.take(mapped_log(0, trace=None))
    ended(world)
    assert world.run.status == "ok"
    assert end_of(world).payload["cause"] == f"{KILLED}, no end marker"


def test_requests_in_flight_at_the_exit_still_count(world):
    world.take(mapped(2, 1, LLM))
    world.exit(cause=EXIT_0)
    world.pass_time(1)
    world.take(mapped(1))
    world.pass_time(3)
    assert world.run.status == "ok"
    assert not any(r.late for r in world.run.records)


def test_one_process_of_several_leaves_while_the_run_goes_on(world):
    world.take(mapped(2, 1, AGENT, remote=True, resource=program("child")), pid=2)
    world.take(mapped(1))
    world.pass_time(1)
    world.exit(2, KILLED)
    world.pass_time(GRACE_S)
    (gone,) = world.run.of(kinds.SOURCE_EXIT)
    assert (gone.payload["source"], gone.payload["cause"], world.run.status) == ("child", "bye", "running")
    world.exit(1, EXIT_0)
    world.pass_time(GRACE_S)
    assert world.run.status == "ok"


def test_a_process_that_died_below_a_root_that_went_on_to_its_end_does_not_crash_the_run(world):
    world.take(mapped(3, 2, LLM, resource=program("child"), session="s"), pid=2)
    world.take(mapped(5, 4, LLM))
    world.pass_time(HOLD_S)
    world.exit(2, KILLED)
    world.pass_time(GRACE_S)
    (gone,) = world.run.of(kinds.SOURCE_EXIT)
    assert gone.payload["error_type"] == "SourceExited"
    world.take(mapped(4, 1, AGENT, end=9), mapped(1, end=HOLD_S + 4))
    ended(world, EXIT_0)
    assert world.run.status == "ok"


def test_a_process_that_died_and_no_root_after_it_is_a_crash(world):
    world.take(mapped(3, 2, LLM, resource=program("child"), session="s"), pid=2)
    world.take(mapped_log(0, session="s", trace=None))
    world.pass_time(7)
    world.exit(2, KILLED)
    world.pass_time(GRACE_S)
    ended(world, EXIT_0)
    assert world.run.status == "crashed"


def test_half_an_hour_without_an_item_ends_a_session_for_being_idle(world):
    world.take(mapped(1, session="s"))
    world.pass_time(1)
    world.pass_time(IDLE_S - 1)
    assert world.run.status == "running"
    world.pass_time(2)
    assert (world.run.status, end_of(world).payload["cause"]) == ("ok", "idle")


def test_a_living_process_with_something_open_is_at_work_however_long(world):
    world.take(mapped(2, 1, LLM))
    for _ in range(4):
        world.pass_time(IDLE_S)
    assert world.run.status == "running"


def test_nobody_known_something_open_and_silence_is_a_crash(world):
    world.take(mapped(2, 1, LLM), pid=None)
    world.pass_time(10)
    world.pass_time(IDLE_S - 100)
    world.take(Pulse(0, PROGRAM), pid=None)
    world.pass_time(IDLE_S - 1)
    assert world.run.status == "running", "metrics are a sign of life"
    world.pass_time(100)
    assert world.run.status == "crashed"
    assert world.run.records[-1].payload["cause"] == "silence"


def test_a_pid_that_only_the_sender_gave_does_not_keep_a_silent_run_open(world):
    world.take(mapped(2, 1, LLM, resource=Resource({"process.pid": 1})), pid=None)
    world.pass_time(10)
    world.pass_time(IDLE_S)
    assert world.run.records[-1].payload["cause"] == "silence"


def test_a_gap_in_our_own_clock_grants_everybody_an_interval(world):
    world.take(mapped(1, session="s"))
    world.pass_time(1)
    world.now += 10 * IDLE_S
    world.runs.grant(T0 + world.now)
    world.pass_time(1)
    assert world.run.status == "running"


def test_a_senders_own_word_of_its_end_ends_the_run(world):
    world.take(mapped(1, session="s"))
    world.take(mapped_log(0, at=5, trace=None, session="s", ends_session=True))
    world.pass_time(7)
    assert (world.run.status, end_of(world).payload["cause"]) == ("ok", "session.end")


def test_a_crash_is_told_within_three_seconds_of_the_death_even_where_all_was_held(world):
    world.take(mapped(2, 1, LLM))
    world.exit()
    world.pass_time(3)
    assert world.run.status == "crashed"


def test_a_request_decoded_after_its_process_has_died_is_told_as_quickly(world):
    world.exit()
    world.take(mapped(2, 1, LLM))
    world.pass_time(3)
    assert world.run.status == "crashed"
