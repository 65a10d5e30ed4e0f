from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentrund.sequencer.trace_hold import (
    CONTENT_S,
    HOLD_ITEMS,
    HOLD_S,
    SETTLE_S,
    Half,
    Held,
    Step,
    TraceHold,
    in_time_order,
)
from support.otlp_build import mapped, mapped_log

PAIR = (Half.START, Half.END)


def held(n: int = 1, at: float = 100.0) -> Held:
    return Held(n, "s", mapped(n), at)


def test_a_batch_waits_for_the_exporters_delay_from_its_first_item():
    hold = TraceHold()
    hold.add(held(1, 100.0))
    hold.add(held(2, 105.0))
    assert not hold.due(100.0 + HOLD_S - 0.001)
    assert hold.due(100.0 + HOLD_S)
    assert [h.rq for h in hold.take()] == [1, 2]
    assert (len(hold), hold.size, hold.due(1e9)) == (0, 0, False)
    hold.add(held(3, 200.0))
    assert not hold.due(200.0 + HOLD_S - 0.001)


def test_settling_shortens_the_wait_and_never_lengthens_it():
    hold = TraceHold()
    hold.add(held(1, 100.0))
    hold.settle(101.0)
    assert not hold.due(101.0)
    assert hold.due(101.0 + SETTLE_S)
    hold.settle(105.9)
    assert hold.due(101.0 + SETTLE_S)


def test_too_many_items_do_not_wait():
    hold = TraceHold()
    for n in range(HOLD_ITEMS):
        assert not hold.due(100.0)
        hold.add(held(n + 1))
    assert hold.due(100.0)


def test_content_waits_for_a_slow_call_but_holds_nothing_else_up():
    hold = TraceHold()
    hold.add(Held(1, "s", mapped_log(1, 7, fills=({}, {})), 100.0))
    assert not hold.due(100.0 + CONTENT_S - 0.001)
    hold.add(held(2, 110.0))
    assert hold.due(110.0 + HOLD_S)
    assert hold.sources == {"s"}


@st.composite
def trees(draw: st.DrawFn, *, sane: bool) -> list[Step]:
    """Steps in any order; sane ones lie within what encloses them and end after they start."""
    steps: list[Step] = []
    points: list[Step] = []
    for _ in range(draw(st.integers(1, 12))):
        outer = draw(st.none() | st.sampled_from(steps)) if steps else None
        low, high = (outer.start_ns, outer.end_ns) if sane and outer else (0, 20)
        start = draw(st.integers(low, high))
        if outer is not None and draw(st.integers(0, 2)) == 0:
            points.append(Step(start, start, outer, (Half.POINT,)))
        else:
            steps.append(Step(start, draw(st.integers(start if sane else 0, high)), outer, PAIR))
    return draw(st.permutations(steps + points))


def positions(steps):
    order = in_time_order(steps)
    return order, {(id(step), half): at for at, (step, half) in enumerate(order)}


@given(trees(sane=False))
def test_every_event_comes_once_and_starts_come_before_what_they_enclose(steps):
    order, at = positions(steps)
    assert len(at) == len(order) == sum(len(s.halves) for s in steps)
    for step in steps:
        if step.halves == PAIR:
            assert at[id(step), Half.START] < at[id(step), Half.END]
        if step.outer is not None and (id(step.outer), Half.START) in at:
            assert at[id(step.outer), Half.START] < at[id(step), step.halves[0]]


@given(trees(sane=True))
def test_sane_steps_come_in_time_order_and_nest(steps):
    order, at = positions(steps)
    times = [step.end_ns if half is Half.END else step.start_ns for step, half in order]
    assert times == sorted(times)
    for step in steps:
        if step.outer is not None and (id(step.outer), Half.END) in at:
            assert at[id(step), step.halves[-1]] < at[id(step.outer), Half.END]


@given(trees(sane=True), st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter_where_times_differ(steps, random):
    shuffled = list(steps)
    random.shuffle(shuffled)
    times = [t for s in steps for t in {s.start_ns, s.end_ns}]
    if len(set(times)) == len(times):
        assert in_time_order(steps) == in_time_order(shuffled)


def test_at_one_time_outer_starts_come_first_and_inner_ends():
    outer = Step(5, 5, None, PAIR)
    inner = Step(5, 5, outer, PAIR)
    point = Step(5, 5, inner, (Half.POINT,))
    assert in_time_order([point, inner, outer]) == [
        (outer, Half.START),
        (inner, Half.START),
        (point, Half.POINT),
        (inner, Half.END),
        (outer, Half.END),
    ]


def test_a_clock_that_goes_back_does_not_turn_a_tree_over():
    outer = Step(100, 200, None, PAIR)
    inner = Step(90, 95, outer, PAIR)
    assert in_time_order([inner, outer]) == [
        (outer, Half.START),
        (inner, Half.START),
        (inner, Half.END),
        (outer, Half.END),
    ]
