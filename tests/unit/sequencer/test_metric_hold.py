"""Which run a metric point belongs to, and how long it waits for that run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.model.otlp import SpanKind
from agentrund.sequencer.metric_hold import WAIT_S
from agentrund.sequencer.otlp_commands import BY_PROCESS, BY_RUN, BY_SESSION, BY_TRACE, Done, OpenRun, RunKey
from agentrund.sequencer.otlp_ends import GRACE_S, QUIET_S
from agentrund.sequencer.otlp_stored import StoredItems
from support.otlp_build import TRACE, mapped, mapped_log, mapped_metric
from support.otlp_world import World, program

OTHER = "22" * 16


def placed(world: World) -> list[tuple[RunKey | None, str]]:
    return [(m.key, m.point.metric.item.metric.name) for m in world.executor.measured]


def test_metrics_open_no_run():
    world = World()
    rq = world.take(mapped_metric(0), mapped_metric(1, session="s"))
    world.pass_time(WAIT_S - 1)
    assert (placed(world), world.executor.done) == ([], [])
    world.pass_time(1)
    assert placed(world) == [(None, "calls"), (RunKey(BY_SESSION, "s"), "calls")]
    assert world.executor.done == [rq]
    assert world.all_runs == []


def test_a_point_goes_to_the_open_run_of_its_process_at_once():
    world = World()
    world.take(mapped(1))
    world.pass_time(1)
    rq = world.take(mapped_metric())
    assert placed(world) == [(RunKey(BY_TRACE, TRACE), "calls")]
    assert world.executor.done[-1] == rq


def test_a_point_that_comes_before_its_run_waits_for_it():
    world = World()
    metric = world.take(mapped_metric())
    world.pass_time(WAIT_S - 2)
    world.take(mapped(1))
    assert placed(world) == []
    world.pass_time(1)
    assert placed(world) == [(RunKey(BY_TRACE, TRACE), "calls")]
    assert metric in world.executor.done


def test_a_point_is_written_after_its_run_was_opened():
    world = World()
    world.take(mapped_metric(), mapped(1))
    world.pass_time(1)
    kinds = [type(c).__name__ for c in world.executor.commands]
    assert kinds.index("OpenRun") < kinds.index("Measure")


def test_a_process_with_two_open_runs_keeps_its_points_to_itself():
    world = World()
    world.take(mapped(1), mapped(2, trace=OTHER))
    world.pass_time(1)
    world.take(mapped_metric())
    world.pass_time(WAIT_S)
    assert placed(world) == [(None, "calls")]


def test_the_only_run_of_a_process_gets_its_points_when_it_has_ended_too():
    world = World()
    world.take(mapped(1))
    world.pass_time(QUIET_S + 2)
    assert world.run.status == "ok"
    world.take(mapped_metric())
    assert placed(world) == [(RunKey(BY_TRACE, TRACE), "calls")]
    assert world.run.status == "ok"


def test_of_several_runs_of_a_process_the_open_one_gets_its_points():
    world = World()
    world.take(mapped(1))
    world.pass_time(QUIET_S + 2)
    world.take(mapped(2, trace=OTHER))
    world.pass_time(1)
    world.take(mapped_metric())
    assert placed(world) == [(RunKey(BY_TRACE, OTHER), "calls")]


def test_another_process_has_no_part_in_a_run():
    world = World()
    world.take(mapped(1))
    world.pass_time(1)
    world.take(mapped_metric(resource=program("other")), pid=2)
    world.pass_time(WAIT_S)
    assert placed(world) == [(None, "calls")]


def test_a_session_counts_before_the_process():
    world = World()
    world.take(mapped(1, session="a"), pid=1)
    world.take(mapped(2, session="b", trace=OTHER, resource=program("other")), pid=2)
    world.pass_time(1)
    world.take(mapped_metric(session="b"), pid=1)
    assert placed(world) == [(RunKey(BY_SESSION, "b"), "calls")]


def test_a_session_that_a_run_of_another_key_turned_out_to_have():
    world = World()
    world.take(mapped_log(1, trace=None), mapped(1))
    world.pass_time(1)
    world.take(mapped(2, 1, SpanKind.TOOL, session="late"))
    world.pass_time(7)
    key = world.runs.sessions["late"]
    world.take(mapped_metric(session="late"))
    assert placed(world) == [(key, "calls")]


@pytest.mark.parametrize("setting", [BY_TRACE, BY_PROCESS])
def test_where_sessions_make_no_runs_the_process_counts(setting):
    world = World(run_key=setting)
    world.take(mapped(1, session="a"))
    world.pass_time(1)
    (opened,) = [c for c in world.executor.commands if isinstance(c, OpenRun)]
    world.take(mapped_metric(session="b"))
    assert placed(world) == [(opened.key, "calls")]


def test_an_explicit_run_counts_before_all():
    world = World()
    world.take(mapped(1, session="a"), run_id="r1")
    world.pass_time(1)
    world.take(mapped_metric(session="b"), run_id="r1")
    world.take(mapped_metric(resource=program("x")), pid=3, run_id="r2")
    assert placed(world) == [(RunKey(BY_RUN, "r1"), "calls")]
    world.pass_time(WAIT_S)
    assert placed(world)[1:] == [(RunKey(BY_RUN, "r2"), "calls")], "it may be a run of another door"


def test_after_the_end_of_its_process_a_point_waits_no_longer():
    world = World()
    world.take(mapped_metric())
    world.exit()
    world.pass_time(GRACE_S - 0.5)
    assert placed(world) == []
    world.pass_time(0.5)
    assert placed(world) == [(None, "calls")]


def test_a_stop_writes_what_waits():
    world = World()
    rq = world.take(mapped_metric())
    world.shut_down()
    assert (placed(world), world.executor.done) == ([(None, "calls")], [rq])


def test_what_is_too_much_to_wait_is_written():
    world = World(held_bytes=8 * 2200 * 10)
    world.take(*(mapped_metric(n) for n in range(10)))
    assert placed(world) == []
    world.take(mapped_metric(10))
    assert len(placed(world)) == 11


def test_a_request_is_done_when_its_last_point_is_written():
    world = World()
    rq = world.take(mapped_metric(0, session="a"), mapped_metric(1, session="b"))
    world.take(mapped(1, session="a"))
    world.pass_time(1)
    assert len(placed(world)) == 1
    assert rq not in world.executor.done
    world.pass_time(WAIT_S)
    assert rq in world.executor.done
    last = [c for c in world.executor.commands if not isinstance(c, Done)][-1]
    assert last is world.executor.measured[-1]


def test_points_that_are_stored_are_not_written_again():
    world = World()
    world.runs.stored = StoredItems([1])
    world.runs.stored.note({"rq": 1, "i": 0})
    world.take(mapped(1), mapped_metric(0), mapped_metric(1, name="new"))
    world.pass_time(1)
    assert placed(world) == [(RunKey(BY_TRACE, TRACE), "new")]
    assert world.executor.done == [1]


def test_who_sent_what_waits_is_not_forgotten():
    world = World()
    world.take(mapped_metric())
    for n in range(2, 1500):
        world.take(mapped_metric(resource=program(f"p{n}")), pid=n)
        world.now += 0.001
    world.pass_time(WAIT_S + 1)
    assert len(placed(world)) == 1499


STEPS = st.one_of(
    st.tuples(st.just("metric"), st.sampled_from([1, 2]), st.sampled_from([None, "a", "b"])),
    st.tuples(st.just("span"), st.sampled_from([1, 2]), st.sampled_from([None, "a", "b"])),
    st.tuples(st.just("exit"), st.sampled_from([1, 2]), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 200]), st.none()),
)


@given(st.lists(STEPS, max_size=15))
def test_every_point_is_written_once_in_order_and_opens_nothing(steps):
    world, sent, spans = World(), [], 0
    for n, (what, who, session) in enumerate(steps):
        if what == "metric":
            sent.append((who, session, n))
            metric = mapped_metric(0, name=str(n), session=session, resource=program(f"p{who}"))
            world.take(metric, pid=who)
        elif what == "span":
            spans += 1
            one = mapped(n + 1, trace=f"{n + 1:032x}", session=session, resource=program(f"p{who}"))
            world.take(one, pid=who)
        elif what == "exit":
            world.exit(who)
        else:
            world.pass_time(who)
    world.shut_down()
    names = [name for _, name in placed(world)]
    assert sorted(names) == sorted(str(n) for _, _, n in sent)
    assert len(world.executor.done) == len(sent) + spans
    for sender in {(who, session) for who, session, _ in sent}:
        own = [str(n) for who, session, n in sent if (who, session) == sender]
        assert [name for name in names if name in own] == own
    opened = [c.key for c in world.executor.commands if isinstance(c, OpenRun)]
    assert len(opened) <= spans
    for measure in world.executor.measured:
        if measure.key is not None and measure.key.by != BY_SESSION:
            assert measure.key in opened


def test_a_request_that_was_put_off_is_taken_after_later_ones_and_each_point_is_written_once():
    world = World()
    world.now = 30.0
    late = world.take(mapped_metric(0, name="later"))
    world.now = 0.0
    early = world.take(mapped_metric(0, name="earlier"))
    world.pass_time(WAIT_S)
    assert (placed(world), world.executor.done) == ([(None, "earlier")], [early])
    world.pass_time(30)
    assert (placed(world), world.executor.done) == ([(None, "earlier"), (None, "later")], [early, late])
