from __future__ import annotations

import pytest

from agentrund.model import kinds
from agentrund.model.otlp import SpanKind
from agentrund.sequencer.trace_hold import Held
from agentrund.sequencer.trace_release import Fed, release
from agentrund.sequencer.trace_tree import TraceTree
from support.otlp_build import TRACE, hex_id, mapped, mapped_log

LLM, TOOL, AGENT, STEP, OTHER, POINT, DETAIL = (
    SpanKind.LLM,
    SpanKind.TOOL,
    SpanKind.AGENT,
    SpanKind.STEP,
    SpanKind.OTHER,
    SpanKind.POINT,
    SpanKind.DETAIL,
)
BOOM = ("ValueError", "boom")


def released(*items, tree: TraceTree | None = None, source: str = "s") -> list[Fed]:
    tree = TraceTree() if tree is None else tree
    batch = [Held(n, source, item, 0.0) for n, item in enumerate(items, 1)]
    for held in batch:
        if hasattr(held.item, "kind"):
            tree.add(held, held.item)
    steps = release(tree, batch)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def lines(fed: list[Fed]) -> list[tuple[str, str | None, str | None]]:
    return [(f.event.type, f.event.name, f.event.parent) for f in fed]


def test_a_trace_becomes_pairs_in_time_order_with_parents():
    fed = released(
        mapped(3, 2, LLM, start=0.2, end=0.4),
        mapped(4, 2, TOOL, name="t", start=0.5, end=0.6),
        mapped(2, 1, STEP, start=0.1, end=0.9),
        mapped(1, 0, AGENT, name="a"),
    )
    agent = hex_id(1)
    assert lines(fed) == [
        (kinds.AGENT_START, "a", None),
        (kinds.LLM_PROMPT, "a", agent),
        (kinds.LLM_RESPONSE, "a", None),
        (kinds.TOOL_CALL, "t", agent),
        (kinds.TOOL_RESULT, "t", None),
        (kinds.AGENT_END, "a", None),
    ]
    assert [f.event.span for f in fed] == [hex_id(n) for n in (1, 3, 3, 4, 4, 1)]


def test_where_an_event_comes_from_stands_in_its_src():
    fed = released(mapped(2, 1, LLM, remote=True), mapped_log(7, 2))
    start, log, end = (f.event.src for f in fed)
    assert start == {
        "rq": 1,
        "i": 2,
        "trace": TRACE,
        "span": hex_id(2),
        "half": "open",
        "parent": hex_id(1),
        "remote": True,
    }
    assert end == {"rq": 1, "i": 2, "trace": TRACE, "span": hex_id(2), "half": "close"}
    assert log == {"rq": 2, "i": 7, "trace": TRACE, "span": hex_id(2)}


def test_a_parent_in_another_process_is_addressed_by_its_source():
    tree = TraceTree()
    released(mapped(1, name="a"), tree=tree, source="one")
    fed = released(mapped(2, 1, TOOL, remote=True), tree=tree, source="two")
    assert fed[0].event.parent == f"one/{hex_id(1)}"


def test_a_parent_that_is_not_known_is_passed_on():
    assert released(mapped(3, 2, LLM))[0].event.parent == hex_id(2)


def test_a_model_call_bears_its_own_agents_name_else_the_enclosing_ones_else_its_own():
    named = [
        f.event.name
        for f in released(
            mapped(1, name="outer"),
            mapped(2, 1, LLM, start=0.1, end=0.2, agent="own"),
            mapped(3, 1, TOOL, name="t", start=0.3, end=0.9),
            mapped(4, 3, LLM, start=0.4, end=0.5),
        )
        if f.event.type == kinds.LLM_PROMPT
    ]
    assert named == ["own", "outer"]
    assert released(mapped(9, 0, LLM, name="chat m"))[0].event.name == "chat m"


def test_the_outer_account_is_filled_with_what_only_the_inner_knows():
    outer, inner = mapped(1, 0, LLM), mapped(2, 1, LLM)
    outer.closer.payload = {"text": "mine", "attributes": {"a": 1}, "stop_reason": None}
    inner.closer.payload = {
        "text": "other",
        "attributes": {"a": 2, "b": 3},
        "stop_reason": "end",
        "tokens_in": 5,
    }
    inner.opener.payload = {"model": "m"}
    start, end = released(inner, outer)
    assert start.event.payload == {"model": "m"}
    assert end.event.payload == {
        "text": "mine",
        "attributes": {"a": 1, "b": 3},
        "stop_reason": "end",
        "tokens_in": 5,
    }


def test_a_failed_call_does_not_take_over_the_words_of_another_account():
    outer, inner = mapped(1, 0, LLM, fault=BOOM), mapped(2, 1, LLM)
    inner.closer.payload = {"text": "fine", "tokens_in": 5}
    end = released(inner, outer)[1].event
    assert (end.type, end.payload) == (
        kinds.LLM_ERROR,
        {"error_type": "ValueError", "error": "boom", "tokens_in": 5},
    )


def test_one_fault_told_by_every_span_around_it_is_one():
    fed = released(
        mapped(1, 0, AGENT, fault=BOOM),
        mapped(2, 1, STEP, start=0.1, end=0.9, fault=BOOM),
        mapped(3, 2, TOOL, start=0.2, end=0.8, fault=BOOM),
    )
    assert [f.event.type for f in fed if f.event.payload.get("error_type")] == [kinds.TOOL_ERROR]
    assert fed[-1].event.status == "error"


def test_every_failed_call_tells_its_own_fault():
    fed = released(
        mapped(1),
        mapped(2, 1, TOOL, start=0.1, end=0.2, fault=BOOM),
        mapped(3, 1, TOOL, start=0.3, end=0.4, fault=BOOM),
    )
    assert [f.event.type for f in fed].count(kinds.TOOL_ERROR) == 2


@pytest.mark.parametrize("kind", [AGENT, STEP, OTHER])
def test_a_fault_that_nothing_below_told_is_an_error_just_before_the_end(kind):
    fed = released(mapped(1, 0, kind, fault=BOOM), mapped(2, 1, LLM, start=0.1, end=0.2))
    assert lines(fed)[-2:] == [
        (kinds.ERROR, None, hex_id(1)),
        (kinds.AGENT_END, f"{kind}-1", None),
    ]
    assert "half" not in fed[-2].event.src


def test_a_fault_of_a_mere_step_is_told_below_what_encloses_it_but_not_inside_a_call():
    fed = released(mapped(1), mapped(2, 1, STEP, start=0.1, end=0.2, fault=BOOM))
    assert lines(fed)[1] == (kinds.ERROR, None, hex_id(1))
    fed = released(mapped(1, 0, TOOL), mapped(2, 1, STEP, start=0.1, end=0.2, fault=BOOM))
    assert [f.event.type for f in fed] == [kinds.TOOL_CALL, kinds.TOOL_RESULT]


def test_a_fault_told_in_an_earlier_batch_is_not_told_again():
    tree = TraceTree()
    released(mapped(2, 1, TOOL, fault=BOOM), tree=tree)
    fed = released(mapped(1, fault=BOOM), tree=tree)
    assert [f.event.type for f in fed] == [kinds.AGENT_START, kinds.AGENT_END]


def test_a_point_is_one_event_at_its_end():
    fed = released(mapped(1), mapped(2, 1, POINT, start=0.1, end=0.4))
    assert [f.event.type for f in fed] == [kinds.AGENT_START, kinds.LOG, kinds.AGENT_END]
    assert fed[1].event.parent == hex_id(1)
    assert fed[1].event.src["half"] == "close"


def test_a_log_record_lies_in_the_step_its_span_is_or_is_part_of():
    fed = released(
        mapped_log(1, 3, at=0.5),
        mapped_log(2, 9, at=0.6),
        mapped_log(3, at=0.7),
        mapped(1, 0, AGENT),
        mapped(2, 1, TOOL, start=0.1, end=0.9),
        mapped(3, 2, DETAIL),
    )
    assert [f.event.parent for f in fed if f.event.type == kinds.LOG] == [hex_id(2), hex_id(9), None]


def test_an_exception_in_a_log_is_an_error_unless_a_span_told_it():
    fed = released(mapped(1, 0, TOOL, fault=BOOM), mapped_log(1, 1, fault=("m.ValueError", "boom")))
    assert [f.event.type for f in fed] == [kinds.TOOL_CALL, kinds.LOG, kinds.TOOL_ERROR]
    (alone,) = released(mapped_log(1, fault=BOOM))
    assert alone.event.type == kinds.ERROR
    assert alone.event.payload == {
        "error_type": "ValueError",
        "error": "boom",
        "level": "INFO",
        "message": "hello",
    }


def test_content_told_by_records_goes_into_the_call_and_is_no_event():
    call = mapped(1, 0, LLM)
    call.closer.payload = {"text": "said by the span"}
    fed = released(
        call,
        mapped_log(1, 1, fills=({"messages": 1, "text": "[system]\nx", "input": ["a"]}, {})),
        mapped_log(2, 1, fills=({"messages": 1, "text": "[user]\ny", "input": ["b"]}, {})),
        mapped_log(3, 1, fills=({"model": "m"}, {"text": "said by the record", "stop_reason": "end"})),
    )
    assert [f.event.payload for f in fed] == [
        {"messages": 2, "text": "[system]\nx\n\n[user]\ny", "input": ["a", "b"], "model": "m"},
        {"text": "said by the span", "stop_reason": "end"},
    ]


def test_content_without_its_call_is_a_log():
    (alone,) = released(mapped_log(1, 5, fills=({"text": "x"}, {})))
    assert alone.event.type == kinds.LOG


def test_a_notice_opens_a_step_that_its_span_closes():
    tree = TraceTree()
    (start,) = released(mapped(1, notice=True), tree=tree)
    assert (start.event.type, start.event.src["half"]) == (kinds.AGENT_START, "open")
    (end,) = released(mapped(1), tree=tree)
    assert (end.event.type, end.event.src["half"]) == (kinds.AGENT_END, "close")


def test_a_chain_that_comes_inside_out_costs_a_look_below_each_span():
    looks = 0

    class Counted(dict):
        def get(self, *key):
            nonlocal looks
            looks += 1
            return super().get(*key)

    tree = TraceTree()
    tree._children = Counted()
    told = [released(mapped(n, n - 1, LLM, name="chat"), tree=tree) for n in range(1000, 1, -1)]
    assert [len(fed) for fed in told] == [2] + [0] * 998, "the innermost is the account that is kept"
    assert looks < 3 * 1000
