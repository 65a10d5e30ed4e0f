"""Clients that tell the same as log records and as spans (D8), and their sessions (R8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentrund.model import kinds
from agentrund.model.otlp import Encoding, MappedLog, MappedSpan, Signal
from agentrund.receivers.decode.claude_code import SPANS
from agentrund.receivers.decode.mapping import map_item
from agentrund.receivers.decode.otlp import decode
from agentrund.sequencer.otlp_runs import OtlpRuns
from agentrund.sequencer.otlp_stored import StoredItems
from agentrund.sequencer.trace_hold import HOLD_S
from support import otlp_build as build
from support.client_records import SESSION, claude, codex, gemini
from support.otlp_build import T0, mapped
from support.otlp_restart import restore
from support.otlp_world import World, program

EXITED = "process exited: exit code 0"
OUTPUT = "gen_ai.tool.call.result"
KILLED = "process exited: killed by SIGKILL"
CALL = {"model": "m", "input_tokens": 7, "duration_ms": 1000, "prompt.id": "p1"}
TOOL = {"tool_name": "Bash", "tool_use_id": "t1", "prompt.id": "p1"}
HELPER = {"agent_id": "a", "agent.name": "helper"}
"""A subagent."""


@pytest.fixture
def world() -> World:
    return World()


def prompt(at: float = 1.0, turn: str = "p1") -> MappedLog:
    return claude("user_prompt", {"prompt.id": turn}, at=at)


def request(at: float = 3.0, **more) -> MappedLog:
    return claude("api_request", CALL | more, at=at)


def decision(at: float = 4.0) -> MappedLog:
    return claude("tool_decision", TOOL | {"decision": "accept"}, at=at)


def result(at: float = 5.0, success: str = "true", **more) -> MappedLog:
    return claude("tool_result", TOOL | {"success": success} | more, at=at)


def numbered(*records: MappedLog, first: int = 0) -> list[MappedLog]:
    for i, record in enumerate(records):
        record.i, record.count = i, first + i
        for step in record.steps:
            step.i = i
    return list(records)


def spans(*sent, scope: str = SPANS, service: str = "claude-code") -> list[MappedSpan]:
    body = build.traces(*sent, scope=scope, resource={"service.name": service})
    return [map_item(i) for i in decode(Signal.TRACES, Encoding.PROTOBUF, body) if i is not None]


def span(n: int, parent: int, kind: str, start: float, seconds: float, **attributes):
    said = {"session.id": SESSION, "span.type": kind, **attributes}
    return build.span(n, parent, name=kind, start=T0 + start, seconds=seconds, attributes=said)


def turn_spans() -> list[MappedSpan]:
    """The spans of a turn: its model call, its tool, and itself."""
    tool = span(3, 1, "tool", 4.0, 1.0, tool_name="Bash", tool_use_id="t1")
    tool.events.add(name="tool.output", attributes=build.key_values({"output": "done"}))
    call = span(2, 1, "llm_request", 2.0, 1.0, **{"gen_ai.response.model": "m", "stop_reason": "tool_use"})
    return spans(call, tool, span(1, 0, "interaction", 0.9, 5.0))


def shown(world: World) -> list[str]:
    return [t for t, _ in world.shown() if t != kinds.LOG]


STORY = [
    kinds.AGENT_START,
    kinds.LLM_PROMPT,
    kinds.LLM_RESPONSE,
    kinds.TOOL_CALL,
    kinds.TOOL_RESULT,
]


# -- at once ---------------------------------------------------------------------------------------


def test_records_are_written_when_they_come_and_in_order_of_time(world):
    world.take(*numbered(result(), decision(), request(), prompt()))
    assert shown(world) == STORY
    by_type = {r.type: r for r in world.run.records}
    agent = by_type[kinds.AGENT_START].seq
    assert by_type[kinds.LLM_PROMPT].parent_seq == by_type[kinds.TOOL_CALL].parent_seq == agent
    assert by_type[kinds.TOOL_RESULT].parent_seq == by_type[kinds.TOOL_CALL].seq


def test_a_decision_is_an_open_call_until_its_result_comes(world):
    world.take(prompt())
    world.take(decision())
    world.exit(cause=KILLED)
    world.pass_time(3)
    assert world.run.status == "crashed"
    assert [s["name"] for s in world.run.open_listed()] == ["claude-code", "Bash"]


@pytest.mark.parametrize(
    ("told", "killed", "exited"),
    [
        ([prompt()], "crashed", "ok"),
        ([prompt(), request()], "ok", "ok"),
        ([prompt(), request(), decision(), result()], "crashed", "ok"),
        ([prompt(), request(), decision(), result(), request(at=6.5)], "ok", "ok"),
        ([prompt(), request(), prompt(at=7.0, turn="p2")], "crashed", "ok"),
        ([prompt(), decision(), request(at=4.5, **HELPER), result()], "crashed", "ok"),
        ([prompt(), request(**HELPER), result(**HELPER), request(at=6.5)], "ok", "ok"),
    ],
)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_turn_is_cut_off_where_its_model_was_to_answer_a_process_that_was_killed(
    told, killed, exited, backwards
):
    for cause, status in ((KILLED, killed), (EXITED, exited)):
        world = World()
        for record in reversed(told) if backwards else told:
            world.take(replace(record, steps=[replace(step) for step in record.steps]))
        world.exit(cause=cause)
        world.pass_time(3)
        assert world.run.status == status
        turns = {s["name"] for s in world.run.open_listed()} - {"helper"}
        assert turns == ({"claude-code"} if status == "crashed" else set())


def test_a_call_whose_opening_came_before_tells_at_its_end_what_it_adds(world):
    world.take(decision())
    world.take(claude("tool_result", TOOL | {"success": "true", "tool_input": '{"a": 1}'}))
    (closed,) = world.run.of(kinds.TOOL_RESULT)
    assert closed.payload["args"] == {"a": 1}


def test_a_call_told_by_its_result_alone_is_whole(world):
    world.take(result())
    world.take(decision())
    assert shown(world) == [kinds.TOOL_CALL, kinds.TOOL_RESULT]


def test_a_record_that_comes_twice_is_told_once(world):
    for _ in range(2):
        world.take(*numbered(prompt(), request(), decision(), result()))
    assert shown(world) == STORY


def test_an_answer_is_the_text_of_the_call_before_it(world):
    answer = claude("assistant_response", {"response": "hi", "prompt.id": "p1"}, at=3.0)
    world.take(*numbered(prompt(), request(2.5), request(3.0), answer))
    texts = [r.payload.get("text") for r in world.run.of(kinds.LLM_RESPONSE)]
    assert texts == [None, "hi"]
    assert world.run.of(kinds.LLM_RESPONSE)[1].src["logs"] == [[1, 3]]


def test_an_answer_that_comes_later_is_a_log(world):
    world.take(prompt(), request())
    world.take(claude("assistant_response", {"response": "hi", "prompt.id": "p1"}, at=3.1))
    (log,) = world.run.of(kinds.LOG)
    assert log.payload["attributes"]["response"] == "hi"
    assert log.parent_seq == world.run.of(kinds.AGENT_START)[0].seq


# -- turns -----------------------------------------------------------------------------------------


def test_a_clean_end_ends_the_turn_at_its_last_step(world):
    world.take(*numbered(prompt(), request(), decision(), result()))
    world.exit(cause=EXITED)
    world.pass_time(3)
    (end,) = world.run.of(kinds.AGENT_END)
    assert (end.payload, end.ts) == ({"inferred": True}, T0 + 5)
    assert world.run.status == "ok"
    assert not world.run.open_listed()


def test_the_next_prompt_ends_the_turn_before(world):
    world.take(prompt(), request())
    world.take(prompt(9.0, "p2"))
    ends = world.run.of(kinds.AGENT_END)
    assert [(e.ts, e.parent_seq) for e in ends] == [(T0 + 3, world.run.of(kinds.AGENT_START)[0].seq)]


def test_steps_that_name_no_turn_belong_to_that_of_their_time(world):
    world.take(*numbered(codex("user_prompt", at=1.0), codex("user_prompt", at=5.0)))
    world.take(codex("tool_decision", {"tool_name": "x", "call_id": "1", "decision": "approved"}, at=2.0))
    world.take(codex("tool_decision", {"tool_name": "y", "call_id": "2", "decision": "approved"}, at=6.0))
    second = world.run.of(kinds.AGENT_START)[1].seq
    assert [r.parent_seq for r in world.run.of(kinds.TOOL_CALL)] == [None, second]  # the first one has ended


def test_a_log_that_names_no_turn_belongs_to_that_of_its_time_too(world):
    world.take(gemini("user_prompt", at=1.0))
    world.take(gemini("model_routing", at=2.0))
    assert world.run.of(kinds.LOG)[0].parent_seq == world.run.of(kinds.AGENT_START)[0].seq


def other_process(start: float = 0.0, end: float = 30.0) -> MappedSpan:
    said = {"gen_ai.operation.name": "invoke_agent", "session.id": SESSION, "gen_ai.agent.name": "other"}
    sent = build.span(7, start=T0 + start, seconds=end - start, attributes=said)
    return spans(sent, scope="other", service="other")[0]


def test_a_process_that_worked_beside_one_that_has_gone_is_no_successor(world):
    world.take(other_process(), pid=2)
    world.take(prompt(), request(), pid=1)
    world.pass_time(0.25)
    world.exit(1, cause=EXITED)
    world.pass_time(1)
    assert [a.outcome for a in world.run.machine.state.attempts] == ["running"]
    assert kinds.SOURCE_JOIN in world.run.types()


def test_a_process_that_leaves_while_others_live_ends_its_turn(world):
    world.take(other_process(), pid=2)
    world.pass_time(1)
    world.take(prompt(), request(), pid=1)
    world.exit(1, cause=EXITED)
    world.pass_time(3)
    (end,) = [r for r in world.run.of(kinds.AGENT_END) if r.name == "claude-code"]
    assert end.payload == {"inferred": True}
    assert world.run.of(kinds.SOURCE_EXIT)[0].payload["open"] == []


def test_the_process_that_stays_to_the_end_of_a_run_of_which_one_died_ends_its_turn(world):
    world.take(other_process(end=30.0), pid=2)
    world.pass_time(1)
    world.take(prompt(), request(), pid=1)
    world.take(mapped(4, 3, session=SESSION, resource=program("died")), pid=3)
    world.pass_time(7)
    world.exit(3)
    world.pass_time(3)
    world.exit(2, cause=EXITED)
    world.exit(1, cause=EXITED)
    world.pass_time(3)
    assert world.run.status == "ok"
    assert [r.name for r in world.run.of(kinds.AGENT_END) if "inferred" in r.payload] == ["claude-code"]


def test_a_call_that_failed_last_fails_the_run(world):
    world.take(prompt(), claude("api_error", {"error": "no", "prompt.id": "p1"}, at=4.0))
    world.exit(cause=EXITED)
    world.pass_time(3)
    assert world.run.status == "failed"
    assert [r.status for r in world.run.of(kinds.AGENT_END)] == ["error"]


def test_a_tool_that_failed_does_not(world):
    world.take(*numbered(prompt(), request(), decision(), result(success="false")))
    world.exit(cause=EXITED)
    world.pass_time(3)
    assert world.run.status == "ok"


# -- D8 --------------------------------------------------------------------------------------------


def calls(world: World) -> list[str]:
    """Everything but plain logs, in no order."""
    return sorted(shown(world))


def test_with_log_records_there_spans_are_no_events(world):
    world.take(*numbered(prompt(), request(), decision(), result()))
    world.take(*turn_spans())
    world.pass_time(HOLD_S)
    assert calls(world) == sorted([*STORY, kinds.AGENT_END])


def test_spans_wait_for_log_records_although_their_root_is_there(world):
    world.take(*turn_spans())
    world.pass_time(HOLD_S - 0.5)
    assert world.all_runs == []
    world.take(*numbered(prompt(), request(), decision(), result()))
    world.pass_time(1)
    assert calls(world) == sorted([*STORY, kinds.AGENT_END])
    assert world.run.of(kinds.TOOL_RESULT)[0].payload["text"] == "done"
    assert world.run.of(kinds.LLM_RESPONSE)[0].payload["stop_reason"] == "tool_use"
    (end,) = world.run.of(kinds.AGENT_END)
    assert (end.ts, "inferred" in end.payload) == (T0 + 5.9, False)
    assert not world.run.of(kinds.LOG)


def test_spans_that_come_after_say_what_is_not_written_yet_and_no_more(world):
    world.take(*numbered(prompt(), request(stop_reason="x"), decision(), result()))
    world.take(*turn_spans())
    world.pass_time(HOLD_S)
    tool = world.run.of(kinds.TOOL_RESULT)[0].src["span"]
    more = [r for r in world.run.of(kinds.LOG) if r.payload["of"] == tool]
    assert [(r.payload["text"], r.payload["level"]) for r in more] == [("done", "DEBUG")]


def test_spans_wait_also_when_another_process_of_their_trace_has_ended_its_part(world):
    said = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "child"}
    child = build.span(9, 3, name="child", start=T0 + 4.2, attributes=said, flags=0x300)
    world.take(*spans(child, scope="other", service="child"), pid=2)
    world.take(*turn_spans(), pid=1)
    world.pass_time(HOLD_S - 1)
    assert [r.name for r in world.run.of(kinds.AGENT_START)] == ["child"]
    world.take(*numbered(prompt(), request(), decision(), result()), pid=1)
    world.pass_time(HOLD_S)
    found = [one for run in world.all_runs for one in run.of(kinds.LLM_PROMPT, kinds.TOOL_CALL)]
    assert len(found) == 2


def test_without_log_records_the_spans_are_the_account(world):
    world.take(*turn_spans())
    world.pass_time(HOLD_S)
    assert calls(world) == sorted([*STORY, kinds.AGENT_END])
    assert all(r.src["signal"] == "traces" for r in world.run.records if r.src and "half" in r.src)


def test_log_records_after_that_are_plain_logs(world):
    world.take(*turn_spans())
    world.pass_time(HOLD_S)
    world.take(*numbered(prompt(), request(), decision(), result()))
    assert calls(world) == sorted([*STORY, kinds.AGENT_END])
    assert len(world.run.of(kinds.LOG)) == 4


def test_spans_below_their_own_are_told_in_either_case(world):
    child = spans(
        build.span(
            9,
            3,
            name="child",
            start=T0 + 4.2,
            seconds=0.1,
            attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "child"},
        ),
        scope="other",
    )
    world.take(*numbered(prompt(), request(), decision()))
    world.take(*turn_spans(), *child)
    world.pass_time(HOLD_S)
    (_, agent) = world.run.of(kinds.AGENT_START)
    assert (agent.name, agent.parent_seq) == ("child", world.run.of(kinds.TOOL_CALL)[0].seq)


def test_what_is_missing_among_spans_that_are_no_events_is_a_sign_of_a_crash(world):
    world.take(*numbered(prompt(), request()))
    world.take(*turn_spans()[:1])
    world.exit(cause=KILLED)
    world.pass_time(3)
    assert world.run.status == "crashed"
    assert [s.get("missing_parent") for s in world.run.open_listed()] == [None, True]


def test_of_two_calls_at_once_each_gets_what_its_own_span_says(world):
    asked = {"agent_id": "a", "agent.name": "helper"}
    sent = [
        span(2, 9, "llm_request", 2.0, 1.0, stop_reason="main"),
        span(3, 9, "llm_request", 2.0, 1.0, stop_reason="helper", agent_id="a"),
    ]
    world.take(*spans(*sent))
    world.take(*numbered(prompt(), request(**asked), request()))
    world.pass_time(HOLD_S)
    said = {r.name: r.payload["stop_reason"] for r in world.run.of(kinds.LLM_RESPONSE)}
    assert said == {"claude-code": "main", "helper": "helper"}


def test_calls_without_an_id_are_told_apart_by_their_names(world):
    said = {"gen_ai.operation.name": "tool_call", "session.id": SESSION}
    sent = [
        build.span(n, 9, start=T0 + 4, seconds=2, attributes=said | {"gen_ai.tool.name": name, OUTPUT: name})
        for n, name in ((1, "a"), (2, "b"))
    ]
    world.take(*spans(*sent, scope="gemini-cli", service="gemini-cli"))
    for name in ("b", "a"):
        world.take(gemini("tool_call", {"function_name": name, "duration_ms": 1900, "success": True}, at=6.0))
    assert {r.name: r.payload["text"] for r in world.run.of(kinds.TOOL_RESULT)} == {"a": "a", "b": "b"}


def test_a_turns_end_is_its_spans_where_that_waits(world):
    world.take(*turn_spans())
    world.take(*numbered(prompt(), request(), decision(), result(), prompt(9.0, "p2")))
    world.pass_time(HOLD_S)
    (end,) = world.run.of(kinds.AGENT_END)
    assert (end.ts, "inferred" in end.payload) == (T0 + 5.9, False)


def test_a_trace_named_by_a_record_is_of_its_session(world):
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "outer"}
    world.take(*spans(build.span(1, attributes=agent, name="outer"), scope="other"), pid=2)
    world.pass_time(1)
    world.take(claude("user_prompt", {"prompt.id": "p"}, written_in=1), pid=1)
    assert [r.name for r in world.run.of(kinds.AGENT_START)] == ["outer", "claude-code"]


def test_what_spans_add_after_the_end_begins_no_attempt(world):
    world.take(*numbered(prompt(), request(), decision(), result()))
    world.exit(cause=EXITED)
    world.pass_time(3)
    world.take(*turn_spans())
    world.pass_time(HOLD_S)
    assert len(world.run.machine.state.attempts) == 1
    assert [r.late for r in world.run.of(kinds.LOG)] == [True, True]


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
