"""Clients that tell the same as log records and as spans (D8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentrund.model import kinds
from agentrund.model.otlp import MappedSpan
from agentrund.sequencer.trace_hold import HOLD_S
from support import otlp_build as build
from support.claude_story import (
    EXITED,
    HELPER,
    KILLED,
    OUTPUT,
    STORY,
    TOOL,
    calls,
    decision,
    numbered,
    prompt,
    request,
    result,
    shown,
    span,
    spans,
    turn_spans,
)
from support.client_records import SESSION, claude, codex, gemini
from support.otlp_build import T0, mapped
from support.otlp_world import World, program


@pytest.fixture
def world() -> World:
    return World()


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
