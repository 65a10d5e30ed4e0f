from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentrund.model.otlp import MappedSpan, SpanKind
from agentrund.sequencer.trace_hold import Held
from agentrund.sequencer.trace_tree import Added, TraceTree
from support.otlp_build import hex_id, mapped

LLM, AGENT = SpanKind.LLM, SpanKind.AGENT


def request(n: int, at: float, pair: str = "p") -> MappedSpan:
    return mapped(n, kind=LLM, start=at, end=at, logged=True, notice=True, pair=pair)


def answer(n: int, start: float, end: float, pair: str = "p") -> MappedSpan:
    return mapped(n, kind=LLM, start=start, end=end, logged=True, pair=pair)


def add(tree: TraceTree, span: MappedSpan) -> Added:
    return tree.add(Held(1, "s", span, 0.0), span)


def calls(tree: TraceTree) -> dict[str, tuple[bool, bool]]:
    """Of each call, whether it is still open and whether its request is known."""
    return {n.id: (n.pending, n.asked) for n in tree.logged.calls}


def test_an_answer_closes_the_request_it_began_with():
    tree = TraceTree()
    for span in (request(1, 0.0), request(2, 5.0), answer(3, 5.01, 6.0)):
        assert add(tree, span) is Added.NEW
    assert calls(tree) == {hex_id(1): (True, True), hex_id(2): (False, True)}


def test_an_answer_whose_start_is_not_known_closes_the_last_request_before_it():
    tree = TraceTree()
    for span in (request(1, 0.0), request(2, 5.0), request(3, 7.0), answer(4, 6.0, 6.0)):
        add(tree, span)
    assert [n for n, (pending, _) in calls(tree).items() if not pending] == [hex_id(2)]


def test_a_request_that_comes_after_its_answer_is_no_second_call():
    tree = TraceTree()
    assert add(tree, answer(2, 0.01, 3.0)) is Added.NEW
    assert add(tree, request(1, 0.0)) is Added.DUPLICATE
    assert add(tree, request(3, 9.0)) is Added.NEW


def test_an_answer_of_another_pair_or_time_is_another_call():
    tree = TraceTree()
    add(tree, request(1, 0.0))
    add(tree, answer(2, 0.0, 1.0, pair="other"))
    add(tree, answer(3, 20.0, 30.0))
    assert len(calls(tree)) == 3


def test_what_a_request_said_is_at_the_opening_when_both_are_written_together():
    tree = TraceTree()
    asked, answered = request(1, 0.0), answer(2, 0.1, 1.0)
    asked.opener.payload = {"text": "hi", "model": "m"}
    add(tree, asked)
    add(tree, answered)
    node = tree.node(hex_id(1))
    assert node.item is answered
    assert answered.opener.payload == {"text": "hi", "model": "m"}
    assert answered.start_ns == asked.start_ns


@given(st.permutations(list(range(8))))
def test_in_any_order_four_calls_with_known_starts_are_four(order):
    spans = [
        s for n in range(4) for s in (request(n + 1, n * 10.0), answer(n + 11, n * 10 + 0.02, n * 10 + 8.0))
    ]
    tree = TraceTree()
    for place in order:
        add(tree, spans[place])
    assert len(calls(tree)) == 4
    assert set(calls(tree).values()) == {(False, True)}


@given(st.permutations(list(range(3))), st.booleans())
def test_requests_of_calls_in_any_order_when_starts_are_not_known(order, answers_first):
    tree = TraceTree()
    for n in order:
        both = [request(n + 1, n * 10.0), answer(n + 11, n * 10 + 8.0, n * 10 + 8.0)]
        for span in reversed(both) if answers_first else both:
            add(tree, span)
    assert len(calls(tree)) == 3
    assert set(calls(tree).values()) == {(False, True)}


def test_halves_that_come_twice_are_known():
    tree = TraceTree()
    for _ in range(2):
        add(tree, request(1, 0.0))
        add(tree, answer(2, 0.0, 1.0))
    assert len(calls(tree)) == 1


def test_the_turn_of_a_time_is_the_last_that_had_begun():
    tree = TraceTree()
    for n, at in ((1, 0.0), (2, 10.0)):
        add(tree, mapped(n, kind=AGENT, start=at, end=at, logged=True, turn=True, notice=True))
    first, second = tree.node(hex_id(1)), tree.node(hex_id(2))
    assert tree.logged.turn_at(first.start_ns - 1) is None
    assert tree.logged.turn_at(second.start_ns - 1) is first
    assert tree.logged.turn_at(second.start_ns) is second
    assert tree.logged.former() == [first]
