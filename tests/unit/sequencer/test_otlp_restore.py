from __future__ import annotations

import pytest

from agentrund.model import kinds
from agentrund.model.otlp import Peer, SpanKind
from agentrund.sequencer.otlp_commands import RunKey
from agentrund.sequencer.otlp_runs import OtlpRuns
from agentrund.sequencer.otlp_stored import StoredItems
from support.otlp_build import T0, TRACE, hex_id, mapped, mapped_log
from support.otlp_restart import restore
from support.otlp_world import World, identity, program

LLM, TOOL, AGENT, POINT = SpanKind.LLM, SpanKind.TOOL, SpanKind.AGENT, SpanKind.POINT
CALL = {"id": "c1", "name": "search"}


@pytest.fixture
def world() -> World:
    return World()


def restart(world: World) -> None:
    """A new collector: what it knows of open runs, it knows from their records."""
    world.runs = OtlpRuns()
    world.runs.stored = StoredItems(range(1, world._rq + 1))
    for run in world.all_runs:
        restore(world.runs, run.records, T0 + world.now, ended=not run.machine.state.is_open)


def test_a_run_goes_on_as_if_nothing_had_happened(world):
    world.take(mapped(2, 1, LLM, session="s"))
    world.pass_time(7)
    restart(world)
    world.take(mapped(3, 1, TOOL, start=2, end=3), mapped(1, end=4))
    world.pass_time(1)
    world.exit(cause="process exited: exit code 0")
    world.pass_time(3)
    assert world.run.types().count(kinds.RUN_START) == 1
    assert not world.run.of(kinds.SOURCE_JOIN, kinds.RUN_RESUME)
    assert world.run.status == "ok"


def test_a_replay_of_what_was_written_writes_nothing(world):
    sent = [mapped(2, 1, LLM), mapped(1), mapped_log(0, 1)]
    world.take(*sent)
    world.pass_time(1)
    before = len(world.run.records)
    restart(world)
    world._rq = 0
    world.take(mapped(2, 1, LLM), mapped(1), mapped_log(0, 1))
    world.pass_time(1)
    assert len(world.run.records) == before


def test_a_pair_torn_by_the_kill_is_completed(world):
    world.take(mapped(2, 1, LLM, session="s"), mapped(1))
    world.pass_time(1)
    run = world.run
    kept = [r for r in run.records if r.type in (kinds.RUN_START, kinds.AGENT_START, kinds.LLM_PROMPT)]
    world.executor.runs.clear()
    runs = world.runs = OtlpRuns()
    assert restore(runs, kept, T0 + world.now) == RunKey("session", "s")
    items = [mapped(2, 1, LLM, session="s"), mapped(1)]
    parts = [*runs.take(1, T0 + 5, Peer("127.0.0.1", 4000, None, identity(1)), items, T0 + 5)]
    parts += runs.tick(T0 + 6)
    fed = [command.event.type for part in parts for command in part if hasattr(command, "event")]
    assert fed == [kinds.LLM_RESPONSE, kinds.AGENT_END]


def test_what_was_open_is_known_again(world):
    world.take(mapped(3, 2, LLM, requested=[CALL], session="s"))
    world.pass_time(7)
    restart(world)
    run = world.runs.runs[RunKey("session", "s")]
    assert run.lacks() == [{"span": hex_id(2), "missing_parent": True}]
    assert [step["name"] for step in run.asked()] == ["search"]
    world.exit()
    world.pass_time(3)
    assert world.run.status == "crashed"


def test_a_step_that_was_only_begun_is_known_again(world):
    world.take(mapped(1, notice=True))
    restart(world)
    assert [n.id for n in world.runs.traces[TRACE].tree.begun()] == [hex_id(1)]


def test_members_that_left_or_died_are_known_again(world):
    world.take(mapped(1, session="s"))
    world.take(mapped(3, 2, LLM, remote=False, trace="22" * 16, session="s", resource=program("b")), pid=2)
    world.pass_time(7)
    world.exit(2)
    world.pass_time(3)
    restart(world)
    run = world.runs.runs[RunKey("session", "s")]
    assert run.members == {"prog": True, "b": False}
    assert run.died_at == T0 + 7


@pytest.mark.parametrize("known", [False, True])
def test_who_was_there_when_a_run_crashed_resumes_nothing_after_a_restart_either(world, known):
    call = {"start": 8, "end": 12, "remote": True, "resource": program("server")}
    world.take(mapped(2, 1, LLM))
    world.pass_time(10)
    world.exit()
    world.pass_time(5)
    if known:
        world.take(mapped(4, 3, TOOL, **call), pid=2)
        world.pass_time(10)
    restart(world)
    for _ in range(2):
        world.take(mapped(4, 3, TOOL, **call), pid=2)
        world.pass_time(10)
    assert [r.type for r in world.run.records if r.late] == [
        kinds.SOURCE_JOIN,
        kinds.TOOL_CALL,
        kinds.TOOL_RESULT,
    ]
    assert world.run.status == "crashed"


@pytest.mark.parametrize("restarts", [False, True])
def test_who_was_silent_died_with_the_last_that_it_told(restarts):
    world = World(idle_s=60.0)
    world.take(mapped(2, 1, LLM), pid=None, host="10.0.0.9")
    world.pass_time(99)
    world.pass_time(99)
    assert world.run.status == "crashed"
    if restarts:
        restart(world)
    world.take(mapped(4, 1, LLM, start=30, end=31, resource=program("b")), pid=2)
    world.pass_time(10)
    assert [a.outcome for a in world.run.machine.state.attempts] == ["crashed", "running"]


def test_a_run_of_another_door_is_none_of_ours():
    assert restore(OtlpRuns(), [], 0.0) is None


def test_of_a_notice_the_opening_is_all_there_is():
    stored = StoredItems([1])
    stored.note({"rq": 1, "i": 2, "half": "open"})
    assert stored.has(1, mapped(2, kind=TOOL, notice=True))
    assert not stored.has(1, mapped(2, kind=TOOL))


def test_what_a_second_signal_added_is_known_by_its_log():
    stored = StoredItems([1])
    stored.note({"rq": 1, "i": 2})
    assert stored.has(1, mapped(2, kind=TOOL, secondary=True))
    assert not stored.has(1, mapped(2, kind=TOOL))


@pytest.mark.parametrize("restarts", [False, True])
def test_what_has_but_one_record_has_ended_too(world, restarts):
    world.take(mapped(2, kind=LLM, fault=("E", "no"), end=1), mapped(3, 0, POINT, trace="22" * 16, end=2))
    world.pass_time(7)
    if restarts:
        restart(world)
    world.exit(cause="process exited: exit code 0")
    world.pass_time(3)
    assert world.run.status == "ok", "the failed call was not the last"


@pytest.mark.parametrize("restarts", [False, True])
def test_what_has_but_one_record_may_lack_a_parent(world, restarts):
    world.take(mapped(3, 9, POINT, session="s"))
    world.pass_time(7)
    if restarts:
        restart(world)
    (run,) = world.runs.runs.values()
    assert run.lacks() == [{"span": hex_id(9), "missing_parent": True}]
    assert run.roots() == []
