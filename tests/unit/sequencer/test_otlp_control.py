from __future__ import annotations

import pytest

from agentrund.model.otlp import Peer, Resource, SpanKind
from agentrund.sequencer import otlp_control
from agentrund.sequencer.otlp_commands import BY_SESSION, BY_TRACE, Refuse, RunKey
from support.otlp_build import PROGRAM, T0, TRACE, mapped, mapped_log
from support.otlp_world import World, identity, program

REMOTE = Peer("10.0.0.1", 4000)
TIMEOUT_S = 60.0


@pytest.fixture
def world() -> World:
    return World()


def beat(world: World, peer: Peer = REMOTE) -> tuple[bool, list[RunKey]]:
    producer, keys = otlp_control.beat(world.runs, peer, PROGRAM, T0 + world.now)
    return producer.beats, keys


def miss(world: World, seconds: float) -> None:
    world.now += seconds
    now = T0 + world.now
    world.runs.beats_lost(now, now, TIMEOUT_S)
    world.pass_time(3)


def end(world: World, key: RunKey, status: str | None = None) -> None:
    for part in otlp_control.end(world.runs, key, status, "told", T0 + world.now):
        world.perform(part)


def marked(world: World, pid: int = 1) -> list[Refuse]:
    return [c for part in otlp_control.rejected(world.runs, identity(pid), "too large") for c in part]


def test_a_rejected_request_leaves_a_mark_in_the_only_open_run_of_its_process(world):
    assert marked(world) == []
    world.take(mapped(1))
    world.pass_time(1)
    assert marked(world, pid=2) == []
    assert marked(world) == [Refuse(RunKey(BY_TRACE, TRACE), "too large")]
    world.perform(marked(world))
    assert world.run.records[-1].payload["refused"] == "otlp_request"
    world.take(mapped(2, trace="22" * 16))
    world.pass_time(1)
    assert marked(world) == [], "which of the two would be a guess"
    world.pass_time(60)
    assert marked(world) == [], "they have ended"


def begun() -> list:
    return [mapped(2, 1, SpanKind.LLM, session="s")]


# -- heartbeats -------------------------------------------------------------------------------------


def test_who_sent_heartbeats_and_falls_silent_has_died(world):
    world.take(*begun(), pid=None, host="10.0.0.1")
    world.pass_time(10)
    assert beat(world) == (True, [RunKey(BY_SESSION, "s")])
    miss(world, TIMEOUT_S - 1)
    assert world.run.status == "running"
    miss(world, 2)
    assert world.run.status == "crashed"
    assert world.run.records[-1].payload["cause"] == "heartbeat lost"


def test_who_sent_none_is_judged_by_its_silence_alone(world):
    world.take(*begun(), pid=None, host="10.0.0.1")
    world.pass_time(10)
    miss(world, TIMEOUT_S * 2)
    assert world.run.status == "running"


def test_a_process_that_is_watched_dies_when_it_is_seen_to(world):
    world.take(*begun(), pid=1)
    world.pass_time(10)
    assert beat(world, Peer("127.0.0.1", 4000, identity=identity(1)))[0] is False
    miss(world, TIMEOUT_S * 2)
    assert world.run.status == "running"


def test_what_a_heartbeat_says_of_its_sender_is_not_all_that_its_exporter_tells(world):
    instance = {"service.instance.id": PROGRAM.attributes["service.instance.id"]}
    otlp_control.beat(world.runs, REMOTE, Resource(instance), T0)
    world.take(*begun(), pid=None, host="10.0.0.1")
    world.pass_time(10)
    start = world.run.records[0].payload
    assert (start["service"], start["resource"]) == ("demo", PROGRAM.attributes)


def test_our_own_standstill_is_nobodys_silence(world):
    world.take(*begun(), pid=None, host="10.0.0.1")
    world.pass_time(10)
    beat(world)
    world.now += 3600
    world.runs.grant(T0 + world.now)
    miss(world, 1)
    assert world.run.status == "running"


def test_who_was_cut_off_and_comes_back_has_a_new_attempt(world):
    world.take(*begun(), pid=None, host="10.0.0.1")
    world.pass_time(10)
    beat(world)
    miss(world, TIMEOUT_S + 1)
    assert world.run.status == "crashed"
    world.take(mapped(5, trace="33" * 16, session="s"), pid=None, host="10.0.0.1")
    world.pass_time(1)
    assert world.run.status == "running"
    assert [r.type for r in world.run.records if r.type.startswith("run.")] == ["run.start", "run.resume"]


def test_heartbeats_keep_a_quiet_session_open(world):
    world.take(mapped(1, session="s"), pid=None, host="10.0.0.1")
    for _ in range(20):
        world.pass_time(300)
        beat(world)
    assert world.run.status == "running"


# -- ends -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["ok", "failed"])
def test_what_is_held_is_written_before_the_end_it_was_told_of(world, status):
    world.take(mapped_log(0, trace=None, session="s"))
    key = otlp_control.key_of_run(world.runs, None, "s")
    end(world, key, status)
    assert world.shown() == [("log", None)]
    assert (world.run.status, world.run.records[-1].type) == (status, "run.end")


def test_without_a_word_on_how_it_went_its_spans_tell(world):
    world.take(mapped(1, session="s", fault=("E", "no")))
    end(world, RunKey(BY_SESSION, "s"))
    assert world.run.status == "failed"


def test_only_the_named_run_is_ended(world):
    world.take(mapped(1, session="s"), mapped(1, session="t", trace="33" * 16))
    end(world, RunKey(BY_SESSION, "s"), "ok")
    assert [run.status for run in world.all_runs] == ["ok"]
    world.pass_time(10)
    assert sorted(run.status for run in world.all_runs) == ["ok", "running"]


def test_what_a_process_has_under_way_is_held_or_open(world):
    peer = Peer("127.0.0.1", 4000, identity=identity(1))
    world.take(mapped(1, session="s"))
    world.pass_time(10)
    world.take(mapped(2, 1, SpanKind.LLM, trace="33" * 16))
    keys = otlp_control.keys_of_process(world.runs, peer, PROGRAM, T0 + world.now)
    assert keys == [RunKey(BY_SESSION, "s"), RunKey(BY_TRACE, "33" * 16)]
    assert otlp_control.key_of_run(world.runs, TRACE, None) is None
    assert otlp_control.key_of_run(world.runs, None, "t") is None


def test_a_process_that_does_not_say_which_of_its_sources_it_means_has_them_all(world):
    peer = Peer("127.0.0.1", 4000, identity=identity(1))
    world.take(mapped(1, session="s"))
    world.take(mapped(2, trace="33" * 16, session="t", resource=program("other")))
    world.take(mapped(3, trace="44" * 16, session="u"), pid=2)
    world.pass_time(10)
    keys = otlp_control.keys_of_process(world.runs, peer, Resource(), T0 + world.now)
    assert keys == [RunKey(BY_SESSION, "s"), RunKey(BY_SESSION, "t")]
