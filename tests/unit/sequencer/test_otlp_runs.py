from __future__ import annotations

import gc

import pytest

from agentrund.model import kinds
from agentrund.model.otlp import MappedSpan, Pulse, SpanKind
from agentrund.sequencer.otlp_commands import BY_PROCESS, BY_RUN, BY_SESSION, BY_TRACE, Adopt
from agentrund.sequencer.trace_hold import CONTENT_S, HOLD_S, SETTLE_S, held_size
from support.otlp_build import PROGRAM, T0, TRACE, mapped, mapped_log
from support.otlp_world import World, program

LLM, TOOL, AGENT, STEP, OTHER, POINT, DETAIL = (
    SpanKind.LLM,
    SpanKind.TOOL,
    SpanKind.AGENT,
    SpanKind.STEP,
    SpanKind.OTHER,
    SpanKind.POINT,
    SpanKind.DETAIL,
)
OTHER_TRACE = "22" * 16


@pytest.fixture
def world() -> World:
    return World()


def keys(world: World) -> list[str]:
    return [key.by for key in world.executor.runs]


# -- holding ---------------------------------------------------------------------------------------


def test_spans_are_held_until_the_root_has_settled(world):
    world.take(mapped(2, 1, LLM))
    world.pass_time(1)
    assert world.all_runs == []
    world.take(mapped(1))
    assert world.all_runs == []
    world.pass_time(SETTLE_S)
    assert [t for t, _ in world.shown()] == [
        kinds.AGENT_START,
        kinds.LLM_PROMPT,
        kinds.LLM_RESPONSE,
        kinds.AGENT_END,
    ]


def test_without_a_root_spans_come_after_the_batch_delay(world):
    world.take(mapped(2, 1, LLM))
    world.pass_time(HOLD_S - 0.25)
    assert world.all_runs == []
    world.pass_time(0.25)
    assert [t for t, _ in world.shown()] == [kinds.LLM_PROMPT, kinds.LLM_RESPONSE]


def test_logs_flushed_right_after_the_root_take_their_place(world):
    world.take(mapped(1))
    world.pass_time(0.25)
    world.take(mapped_log(0, 1))
    world.pass_time(1)
    assert [t for t, _ in world.shown()] == [kinds.AGENT_START, kinds.LOG, kinds.AGENT_END]
    assert world.run.of(kinds.LOG)[0].parent_seq == 2


def test_the_end_of_the_process_releases_what_it_sent(world):
    world.take(mapped(2, 1, LLM))
    world.exit()
    world.pass_time(SETTLE_S)
    assert [t for t, _ in world.shown()] == [kinds.LLM_PROMPT, kinds.LLM_RESPONSE]


def test_shutting_down_feeds_everything_and_ends_nothing(world):
    world.take(mapped(2, 1, LLM), mapped_log(0, 2, fills=({}, {})))
    world.take(mapped_log(1, trace=None))
    world.shut_down()
    assert sorted(world.executor.done) == [1, 2]
    assert world.run.status == "running"


def test_memory_is_bounded_by_releasing_the_oldest_trace():
    world = World(held_bytes=10 * held_size(mapped(2)))
    for n in range(10):
        world.take(mapped(2, 1, LLM, trace=f"{n + 1:032x}"))
    assert world.all_runs == []
    world.take(mapped(2, 1, LLM, trace=f"{11:032x}"))
    assert world.executor.done == [1, 2, 3, 4], "down to three quarters"


def test_an_item_at_once_is_not_held(world):
    world.take(mapped_log(0, session="s", at_once=True), mapped(2, 1, LLM))
    assert [t for t, _ in world.shown()] == [kinds.LOG]


def test_content_waits_for_a_slow_call(world):
    world.take(mapped_log(0, 2, fills=({"text": "[user]\nhi", "messages": 1}, {})))
    world.pass_time(HOLD_S + 10)
    world.take(mapped(1), mapped(2, 1, LLM))
    world.pass_time(1)
    assert world.run.of(kinds.LLM_PROMPT)[0].payload["text"] == "[user]\nhi"
    assert world.run.of(kinds.LOG) == []


def test_content_whose_call_never_comes_is_written_in_the_end(world):
    world.take(mapped_log(0, 2, fills=({}, {})))
    world.pass_time(CONTENT_S + 1)
    assert world.run.of(kinds.LOG)


# -- done ------------------------------------------------------------------------------------------


def test_a_request_is_done_when_its_last_item_is_fed(world):
    first = world.take(mapped(2, 1, LLM), mapped(1, trace=OTHER_TRACE))
    empty = world.take()
    pulse = world.take(Pulse(0, PROGRAM))
    assert world.executor.done == [empty, pulse]
    world.pass_time(SETTLE_S)
    assert first not in world.executor.done
    world.pass_time(HOLD_S)
    assert world.executor.done == [empty, pulse, first]


def test_repeated_items_are_done_without_an_event(world):
    world.take(mapped(1))
    again = world.take(mapped(1))
    assert world.executor.done == [again]
    world.pass_time(1)
    again = world.take(mapped(1), mapped_log(0, 1))
    world.pass_time(1)
    assert again in world.executor.done
    assert [t for t, _ in world.shown()] == [kinds.AGENT_START, kinds.AGENT_END, kinds.LOG]
    assert world.runs.duplicates == 2


# -- which run -------------------------------------------------------------------------------------


def test_a_trace_with_an_agent_at_its_root_is_a_run(world):
    world.take(mapped(1), mapped(1, trace=OTHER_TRACE))
    world.pass_time(1)
    assert keys(world) == [BY_TRACE, BY_TRACE]


def test_bare_calls_of_a_process_are_one_run(world):
    world.take(mapped(1, 0, LLM), mapped(1, 0, POINT, trace=OTHER_TRACE))
    world.take(mapped(1, 0, LLM, trace="33" * 16, resource=program("b")), pid=2)
    world.pass_time(1)
    assert [str(k) for k in world.executor.runs] == [f"{BY_PROCESS}:prog", f"{BY_PROCESS}:b"]


def test_a_session_found_anywhere_in_a_trace_is_its_run(world):
    world.take(mapped(2, 1, LLM), mapped(1, session="s"))
    world.pass_time(1)
    world.take(mapped(2, 1, LLM, trace=OTHER_TRACE, session="s"), mapped(1, trace=OTHER_TRACE))
    world.pass_time(1)
    assert [str(k) for k in world.executor.runs] == [f"{BY_SESSION}:s"]
    assert world.run.records[0].payload["session_id"] == "s"


def test_two_sessions_of_one_process_are_two_runs(world):
    world.take(mapped(1, session="a"), mapped(1, session="b", trace=OTHER_TRACE))
    world.take(mapped_log(0, trace=None, session="b"), mapped_log(1, trace=None, session="a"))
    world.pass_time(HOLD_S)
    a, b = world.all_runs
    assert len(a.of(kinds.LOG)) == len(b.of(kinds.LOG)) == 1


def test_an_explicit_run_id_counts_before_everything(world):
    world.take(mapped(1, session="s"), run_id="mine")
    resource = program("b")
    resource.attributes["agentrund.run_id"] = "mine"
    world.take(mapped(1, trace=OTHER_TRACE, resource=resource), pid=2)
    world.pass_time(1)
    assert [str(k) for k in world.executor.runs] == [f"{BY_RUN}:mine"]
    assert world.run.of(kinds.SOURCE_JOIN)[0].payload["source"] == "b"


def test_the_same_trace_is_the_same_run_even_when_its_session_comes_late(world):
    world.take(mapped(2, 9, AGENT, remote=True, resource=program("child")), pid=2)
    world.pass_time(1)
    world.take(mapped(1, session="s"))
    world.pass_time(1)
    assert keys(world) == [BY_TRACE]
    assert [c.session_id for c in world.executor.commands if isinstance(c, Adopt)] == ["s"]
    world.take(mapped(1, trace=OTHER_TRACE, session="s"))
    world.pass_time(1)
    assert keys(world) == [BY_TRACE]


def test_three_processes_in_one_trace_nest_across_sources(world):
    world.take(
        mapped(4, 3, AGENT, remote=True, name="child", resource=program("c"), start=0.3, end=0.4), pid=3
    )
    world.take(mapped(3, 2, TOOL, name="t", resource=program("b"), start=0.2, end=0.5), pid=2)
    world.take(mapped(2, 1, AGENT, remote=True, name="b", resource=program("b"), start=0.1, end=0.6), pid=2)
    world.take(mapped(1, name="a"))
    world.pass_time(1)
    records = {r.name: r for r in world.run.records if r.type in kinds.OPENERS}
    assert records["child"].parent_seq == records["t"].seq
    assert records["t"].parent_seq == records["b"].seq
    assert records["b"].parent_seq == records["a"].seq


def tools(world) -> list[str]:
    return [r.name for run in world.all_runs for r in run.of(kinds.TOOL_CALL)]


def script(n: int = 3, parent: int = 2) -> list:
    """What a program without a model tells that was started by a tool call ``parent``."""
    resource = program("script")
    return [
        mapped(n, parent, AGENT, remote=True, resource=resource),
        mapped(n + 1, n, TOOL, name="inner", resource=resource),
    ]


def test_a_tool_call_may_be_told_by_the_process_it_started_long_before_its_own_tells_it(world):
    world.take(*script(), pid=2)
    world.exit(2, "process exited: exit code 0")
    world.pass_time(HOLD_S - 1)
    assert world.all_runs == []
    world.take(mapped(2, 9, DETAIL))
    world.pass_time(0.75)
    assert tools(world) == [], "what lies around it is not known yet"
    world.take(mapped(9, 1, TOOL, name="outer"), mapped(1))
    world.pass_time(1)
    assert tools(world) == ["outer"]


@pytest.mark.parametrize("alive", [True, False])
def test_a_tool_call_nobody_calls_for_is_told_after_a_batch_delay(world, alive):
    world.take(*script(), pid=2)
    if not alive:
        world.exit(2, "process exited: exit code 0")
    world.pass_time(HOLD_S)
    assert tools(world) == ["inner"]


def test_what_cannot_be_anothers_tool_call_does_not_wait(world):
    world.take(*script(), mapped(5, 3, LLM, resource=program("script")), pid=2)
    world.pass_time(1)
    assert tools(world) == ["inner"]


def test_nobody_waits_for_a_caller_that_is_dead(world):
    world.take(mapped(5, 1, LLM, session="s"))
    world.pass_time(HOLD_S)
    world.take(*script(), pid=2)
    world.pass_time(0.5)
    world.exit(1)
    world.pass_time(0.75)
    assert tools(world) == ["inner"]
    world.exit(2, "process exited: exit code 0")
    world.pass_time(2.25)
    assert world.run.status == "crashed"


def test_a_server_that_lives_on_holds_up_no_verdict_on_its_caller(world):
    world.take(mapped(5, 1, LLM, session="s"))
    world.pass_time(HOLD_S)
    world.exit(1)
    world.pass_time(1.25)
    world.take(mapped(3, 2, TOOL, remote=True, name="inner", resource=program("server")), pid=2)
    world.pass_time(1.25)
    assert tools(world) == ["inner"]
    (gone,) = world.run.of(kinds.SOURCE_EXIT)
    assert gone.payload["source"] == "prog"


def test_a_run_is_not_over_while_a_part_of_it_waits_for_its_caller(world):
    world.take(mapped_log(1, trace=None, session="s", joins=TRACE))
    world.pass_time(HOLD_S)
    world.take(*script(), pid=2)
    world.pass_time(0.5)
    world.exit(1, "process exited: exit code 0")
    world.pass_time(HOLD_S + 3)
    assert tools(world) == ["inner"]
    assert [a.outcome for a in world.run.machine.state.attempts] == ["running"]
    world.exit(2, "process exited: exit code 0")
    world.pass_time(3)
    assert [a.outcome for a in world.run.machine.state.attempts] == ["ok"]


def test_a_run_is_not_over_while_a_part_of_it_is_held_that_only_names_its_session(world):
    world.take(mapped_log(1, trace=None, session="s", joins=TRACE))
    world.take(mapped_log(2, trace=None, resource=program("script")), pid=2)
    world.pass_time(HOLD_S)
    world.exit(1, "process exited: exit code 0")
    world.pass_time(1.75)
    world.take(*script(), pid=2)
    world.pass_time(1)
    assert tools(world) == ["inner"]
    assert [len(run.machine.state.attempts) for run in world.all_runs] == [1, 1]


def test_ids_repeated_by_seeded_random_numbers_stay_apart(world):
    for pid, name in ((1, "one"), (2, "two")):
        world.take(mapped(2, 1, LLM, resource=program(name)), mapped(1, resource=program(name)), pid=pid)
    world.pass_time(1)
    first, second = world.all_runs
    assert len(first.of(kinds.LLM_PROMPT)) == len(second.of(kinds.LLM_PROMPT)) == 1
    assert world.runs.duplicates == 0


def test_a_trace_of_details_joins_nothing_and_its_logs_the_only_open_run(world):
    world.take(mapped(1))
    world.pass_time(1)
    world.take(mapped(1, 0, DETAIL, trace=OTHER_TRACE), mapped_log(0, 1, trace=OTHER_TRACE))
    world.take(mapped_log(1, trace=None))
    world.pass_time(HOLD_S)
    assert len(world.run.of(kinds.LOG)) == 2


def test_a_log_of_a_process_without_a_run_is_a_run_of_the_process(world):
    world.take(mapped_log(0, trace=None))
    world.pass_time(HOLD_S)
    assert keys(world) == [BY_PROCESS]


def test_a_log_whose_trace_is_still_to_come_waits_in_the_run_of_that_trace(world):
    world.take(mapped_log(0, 1))
    world.pass_time(HOLD_S)
    world.take(mapped(1))
    world.pass_time(1)
    assert keys(world) == [BY_TRACE]
    assert [t for t, _ in world.shown()] == [kinds.LOG, kinds.AGENT_START, kinds.AGENT_END]


# -- arrivals --------------------------------------------------------------------------------------


def test_a_run_starts_at_the_time_of_its_earliest_item_and_says_who_sent_it(world):
    world.pass_time(3)
    world.take(mapped(2, 1, LLM, start=-4, end=-3), mapped(1, start=-5, end=-2))
    world.pass_time(1)
    start = world.run.records[0]
    assert (start.type, start.ts) == (kinds.RUN_START, T0 - 5)
    assert start.payload["source"] == "prog"
    assert start.payload["service"] == "demo"
    assert start.payload["resource"] == PROGRAM.attributes
    assert start.payload["run_key"] == f"{BY_TRACE}:{TRACE}"
    assert (start.payload["pid"], start.payload["pid_start"], start.payload["door"]) == (1, 10, "otlp")


def test_an_item_without_a_time_happened_when_it_arrived(world):
    log = mapped_log(0, trace=None)
    log.time_ns, log.event.ts = 0, None
    world.pass_time(2)
    world.take(log)
    world.pass_time(HOLD_S)
    assert world.run.of(kinds.LOG)


def test_a_new_process_of_a_session_whose_earlier_one_is_gone_resumes_it(world):
    world.take(mapped(2, 1, LLM, session="s"))
    world.exit()
    world.pass_time(1)
    world.take(mapped(1, trace=OTHER_TRACE, session="s", resource=program("again")), pid=2)
    world.pass_time(1)
    types = [r.type for r in world.run.records]
    assert types.index(kinds.SOURCE_EXIT) < types.index(kinds.RUN_RESUME)
    assert [a.outcome for a in world.run.machine.state.attempts] == ["crashed", "running"]


def test_a_session_ended_for_being_idle_is_resumed_by_the_same_process(world):
    world.take(mapped(1, session="s"))
    world.pass_time(1)
    world.pass_time(2000)
    assert world.run.status == "ok"
    world.take(mapped(1, trace=OTHER_TRACE, session="s", start=2000, end=2001))
    world.pass_time(1)
    assert [a.outcome for a in world.run.machine.state.attempts] == ["ok", "running"]


def test_a_late_span_of_an_ended_run_is_late_and_opens_nothing(world):
    world.take(mapped(1))
    world.pass_time(20)
    assert world.run.status == "ok"
    world.take(mapped(2, 1, LLM, start=0.1, end=0.2))
    world.pass_time(1)
    assert [r.type for r in world.run.records if r.late] == [kinds.LLM_PROMPT, kinds.LLM_RESPONSE]
    assert world.run.status == "ok"


def test_an_ended_trace_is_opened_again_by_a_process_that_was_not_part_of_it(world):
    world.take(mapped(2, 1, AGENT, remote=True, resource=program("child")), pid=2)
    world.pass_time(20)
    assert world.run.status == "ok"
    world.take(mapped(1))
    world.pass_time(1)
    assert [r.type for r in world.run.records if not r.src][-1] == kinds.RUN_RESUME
    assert not any(r.late for r in world.run.records)


def test_a_process_whose_run_was_idle_begins_a_new_one(world):
    world.take(mapped(1, 0, LLM))
    world.pass_time(1)
    world.pass_time(2000)
    world.take(mapped(1, 0, LLM, trace=OTHER_TRACE))
    world.pass_time(1)
    assert len(world.all_runs) == 2


# -- what the settings say -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run_key", "with_session", "without"),
    [
        ("auto", BY_SESSION, BY_TRACE),
        ("session", BY_SESSION, BY_PROCESS),
        ("trace", BY_TRACE, BY_TRACE),
        ("process", BY_PROCESS, BY_PROCESS),
    ],
)
def test_the_run_key_can_be_chosen(run_key, with_session, without):
    for session, expected in (("s", with_session), (None, without)):
        world = World(run_key=run_key)
        span = mapped(1)
        span.session = session
        world.take(span)
        world.pass_time(SETTLE_S)
        assert keys(world) == [expected]


def test_the_silence_that_ends_a_run_can_be_chosen():
    world = World(idle_s=20.0)
    world.take(mapped(1, 0, LLM), pid=None)
    world.pass_time(HOLD_S)
    assert world.run.status == "running"
    world.pass_time(20.0)
    assert world.run.status == "ok"


def test_what_was_said_in_a_span_is_not_kept_once_it_is_fed(world):
    def alive() -> int:
        gc.collect()
        return sum(isinstance(found, MappedSpan) for found in gc.get_objects())

    before = alive()
    for number in range(2, 10):
        world.take(mapped(number, 1, TOOL, call_id=f"c{number}"))
    world.take(mapped(1))
    world.pass_time(SETTLE_S)
    assert len(world.shown()) == 18
    world.executor = None
    assert alive() == before


@pytest.mark.parametrize("spans", [1, 2, 5])
@pytest.mark.parametrize("kind", [SpanKind.AGENT, SpanKind.LLM, SpanKind.TOOL])
def test_spans_that_are_each_others_parents_are_all_told(spans, kind):
    world = World()
    rq = world.take(*(mapped(n, n % spans + 1, kind, name=f"{n}") for n in range(1, spans + 1)))
    world.pass_time(10)
    told = {name for _, name in world.shown()}
    assert len(told) == (1 if kind is SpanKind.LLM else spans)
    assert world.executor.done == [rq]
