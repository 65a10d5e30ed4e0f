"""Who comes when a run has crashed: what was under way by then is late, what began after it resumes."""

from __future__ import annotations

import pytest

from agentrund.model import kinds
from agentrund.model.otlp import SpanKind
from agentrund.model.source import Arrival
from support.otlp_build import T0, mapped
from support.otlp_world import World, identity, program

LLM, TOOL = SpanKind.LLM, SpanKind.TOOL


@pytest.fixture
def world() -> World:
    return World()


def test_a_tools_server_that_tells_of_a_call_when_its_caller_has_died_resumes_nothing(world):
    world.take(mapped(2, 1, LLM))
    world.pass_time(10)
    world.exit()
    world.pass_time(5)
    assert world.run.status == "crashed"
    world.take(mapped(4, 3, TOOL, remote=True, start=8, end=12, resource=program("server")), pid=2)
    world.pass_time(10)
    assert [(r.type, r.payload.get("source")) for r in world.run.records if r.late] == [
        (kinds.SOURCE_JOIN, "server"),
        (kinds.TOOL_CALL, None),
        (kinds.TOOL_RESULT, None),
    ]
    assert [a.outcome for a in world.run.machine.state.attempts] == ["crashed"]
    assert world.run.machine.state.live_sources() == []
    world.exit(2)
    world.pass_time(10)
    assert world.run.records[-1].type == kinds.TOOL_RESULT


def crash(world: World) -> None:
    """The run of a model call whose process is killed ten seconds later."""
    world.take(mapped(2, 1, LLM))
    world.pass_time(10)
    world.exit()
    world.pass_time(5)
    assert world.run.status == "crashed"


SERVED = {"start": 8, "end": 12, "remote": True, "resource": program("server")}
"""A call that is under way when its caller is killed."""


def test_who_was_there_at_a_crash_and_goes_on_working_after_it_resumes(world):
    crash(world)
    world.take(mapped(4, 3, TOOL, **SERVED), pid=2)
    world.pass_time(10)
    assert world.run.status == "crashed"
    world.take(mapped(5, 1, LLM, start=20, end=21, resource=program("server")), pid=2)
    world.pass_time(10)
    assert [a.outcome for a in world.run.machine.state.attempts] == ["crashed", "running"]
    assert not world.run.records[-1].late


def test_of_one_batch_some_may_have_been_there_and_another_resumes(world):
    crash(world)
    again = mapped(6, 1, LLM, start=16, end=17, resource=program("again"))
    world.take(mapped(4, 3, TOOL, **SERVED), again, pid=2)
    world.pass_time(10)
    assert [a.outcome for a in world.run.machine.state.attempts] == ["crashed", "running"]


def test_who_comes_late_to_a_run_that_others_hold_open_does_not_hold_it_too(world):
    world.take(mapped(2, 1, LLM), run_id="R")
    world.pass_time(10)
    machine = world.run.machine
    machine.arrive(Arrival("over the socket", identity(9)), T0 + world.now)
    world.exit()
    world.pass_time(5)
    world.take(mapped(4, 3, TOOL, **SERVED), pid=2, run_id="R")
    world.pass_time(10)
    assert [source.id for source in machine.state.live_sources()] == ["over the socket"]
    machine.leave("over the socket", "process exited: killed by SIGKILL", T0 + world.now)
    assert world.run.status == "crashed"


def test_a_run_that_went_on_to_its_end_after_a_death_is_resumed_by_who_comes_then(world):
    child = program("child")
    world.take(mapped(2, 1, LLM, remote=True, resource=child), pid=2)
    world.take(mapped(3, 1, LLM))
    world.pass_time(10)
    world.exit(2)
    world.pass_time(5)
    world.take(mapped(1, start=0, end=20))
    world.pass_time(20)
    assert world.run.status != "crashed"
    world.take(mapped(4, 1, LLM, start=8, end=9, resource=program("third")), pid=3)
    world.pass_time(10)
    assert len(world.run.machine.state.attempts) == 2


def test_what_begins_after_a_crash_resumes_its_trace(world):
    world.take(mapped(2, 1, LLM))
    world.pass_time(10)
    world.exit()
    world.pass_time(5)
    world.take(mapped(4, 1, TOOL, start=12, end=13, resource=program("again")), pid=2)
    world.pass_time(10)
    assert [a.outcome for a in world.run.machine.state.attempts] == ["crashed", "running"]
