from __future__ import annotations

import pytest

from agentrund.model.otlp import Fault, SpanKind
from agentrund.sequencer.trace_hold import Held
from agentrund.sequencer.trace_tree import Added, Role, TraceTree
from support.otlp_build import hex_id, mapped

AGENT, LLM, TOOL, STEP, OTHER, DETAIL, POINT = (
    SpanKind.AGENT,
    SpanKind.LLM,
    SpanKind.TOOL,
    SpanKind.STEP,
    SpanKind.OTHER,
    SpanKind.DETAIL,
    SpanKind.POINT,
)


def add(tree: TraceTree, span, source: str = "s") -> Added:
    return tree.add(Held(1, source, span, 0.0), span)


def tree_of(*spans) -> TraceTree:
    tree = TraceTree()
    for span in spans:
        assert add(tree, span) is Added.NEW
    return tree


def roles(tree: TraceTree, *numbers: int) -> dict[int, Role]:
    nodes = [tree.node(hex_id(n)) for n in numbers]
    tree.decide(nodes)
    return {n: node.role for n, node in zip(numbers, nodes, strict=True)}


def test_a_span_counts_once():
    tree = tree_of(mapped(1))
    assert add(tree, mapped(1)) is Added.DUPLICATE


def test_the_same_ids_from_another_process_are_foreign():
    tree = tree_of(mapped(1), mapped(2, 1, LLM))
    assert add(tree, mapped(2, 1, LLM), "other") is Added.FOREIGN
    assert add(tree, mapped(3), "other") is Added.FOREIGN, "a trace has one root"
    assert add(tree, mapped(3, 1), "other") is Added.NEW


def test_a_notice_and_its_span_are_two_things_each_once():
    tree = tree_of(mapped(1, notice=True))
    assert [n.id for n in tree.begun()] == [hex_id(1)]
    assert not tree.roots
    assert add(tree, mapped(1, notice=True)) is Added.DUPLICATE
    assert add(tree, mapped(1)) is Added.NEW
    assert add(tree, mapped(1)) is Added.DUPLICATE
    assert add(tree, mapped(1, notice=True)) is Added.DUPLICATE
    assert not tree.begun()
    assert len(tree.roots) == 1


@pytest.mark.parametrize("order", [(1, 2, 3, 4), (4, 3, 2, 1), (3, 1, 4, 2)])
def test_nested_accounts_of_one_call_are_one(order):
    spans = {1: mapped(1), 2: mapped(2, 1, LLM), 3: mapped(3, 2, DETAIL), 4: mapped(4, 3, LLM)}
    tree = tree_of(*(spans[n] for n in order))
    assert roles(tree, *order) == {1: Role.STEP, 2: Role.STEP, 3: Role.SILENT, 4: Role.MERGED}
    assert tree.node(hex_id(4)).into is tree.node(hex_id(2))


def test_nested_tools_of_one_name_are_one_call_but_not_through_another_agent():
    tree = tree_of(
        mapped(1, 0, TOOL, name="search"),
        mapped(2, 1, DETAIL),
        mapped(3, 2, TOOL, name="search"),
        mapped(4, 3, TOOL, name="other"),
        mapped(5, 3, AGENT, name="sub"),
        mapped(6, 5, TOOL, name="search"),
    )
    assert roles(tree, 1, 2, 3, 4, 5, 6) == {
        1: Role.STEP,
        2: Role.SILENT,
        3: Role.MERGED,
        4: Role.STEP,
        5: Role.STEP,
        6: Role.STEP,
    }
    assert tree.outer(tree.node(hex_id(4))) is tree.node(hex_id(1)), "a merged span stands for what tells it"


def test_an_agent_in_an_agent_of_its_name_is_folded():
    tree = tree_of(mapped(1, name="a"), mapped(2, 1, STEP), mapped(3, 2, name="a"), mapped(4, 3, name="b"))
    assert roles(tree, 4, 3, 2, 1) == {1: Role.STEP, 2: Role.SILENT, 3: Role.MERGED, 4: Role.STEP}


@pytest.mark.parametrize("kind", [STEP, OTHER])
def test_a_step_is_an_agent_only_where_it_is_a_root_or_local_root(kind):
    tree = tree_of(
        mapped(1, 0, kind), mapped(2, 1, kind), mapped(3, 9, kind, remote=True), mapped(4, 8, kind)
    )
    assert roles(tree, 1, 2, 3, 4) == {1: Role.STEP, 2: Role.SILENT, 3: Role.STEP, 4: Role.SILENT}


def test_a_librarys_own_account_beside_an_instrumentations_is_dropped():
    tree = tree_of(
        mapped(1),
        mapped(2, 1, LLM, scope="sdk", shadow=True, start=0.1, end=0.4),
        mapped(3, 1, LLM, scope="inst", start=0.0, end=0.5),
        mapped(4, 1, LLM, scope="inst", start=0.6, end=0.7),
        mapped(5, 1, LLM, scope="sdk", shadow=True, start=0.8, end=0.9),
    )
    assert roles(tree, 1, 2, 3, 4, 5) == {
        1: Role.STEP,
        2: Role.MERGED,
        3: Role.STEP,
        4: Role.STEP,
        5: Role.STEP,
    }


def test_parallel_calls_of_two_libraries_are_two_calls():
    tree = tree_of(mapped(1), mapped(2, 1, LLM, scope="x"), mapped(3, 1, LLM, scope="y"))
    assert roles(tree, 1, 2, 3) == {1: Role.STEP, 2: Role.STEP, 3: Role.STEP}


@pytest.mark.parametrize(("kind", "name"), [(LLM, None), (TOOL, "t"), (AGENT, "a")])
def test_an_outer_account_that_comes_after_the_inner_was_written_is_not_written(kind, name):
    tree = tree_of(mapped(2, 1, kind, name=name))
    roles(tree, 2)
    tree.node(hex_id(2)).opened = True
    add(tree, mapped(1, 0, kind, name=name))
    assert roles(tree, 1) == {1: Role.SILENT}


def test_a_point_is_a_point_and_a_detail_is_nothing():
    assert roles(tree_of(mapped(1, 0, POINT), mapped(2, 0, DETAIL)), 1, 2) == {1: Role.POINT, 2: Role.SILENT}


def test_parents_that_never_came_are_holes():
    tree = tree_of(mapped(3, 2, LLM), mapped(5, 4, DETAIL), mapped(6, 9, LLM, remote=True))
    assert tree.holes() == {hex_id(2): "s", hex_id(4): "s"}
    add(tree, mapped(2, 1, STEP))
    assert tree.holes() == {hex_id(1): "s", hex_id(4): "s"}


def test_what_is_missing_below_an_ended_root_was_dropped_not_left_open():
    tree = tree_of(mapped(3, 2, LLM, start=0.2, end=0.3), mapped(1, 0, AGENT, start=0.0, end=1.0))
    assert tree.holes() == {}
    add(tree, mapped(5, 4, LLM, start=2.0, end=3.0))
    assert tree.holes() == {hex_id(4): "s"}
    add(tree, mapped(8, 7, LLM, start=0.2, end=0.3), "other")
    assert set(tree.holes()) == {hex_id(4), hex_id(7)}, "another process may have died below it"


def test_when_nothing_more_is_waited_for():
    assert tree_of(mapped(1)).is_rooted({"s", "other"})
    assert tree_of(mapped(1, 0, LLM)).is_rooted({"s"})
    assert not tree_of(mapped(2, 1, LLM)).is_rooted({"s"})
    local = tree_of(mapped(1, 9, AGENT, remote=True))
    assert local.is_rooted({"s"})
    assert not local.is_rooted({"s", "other"})
    assert not tree_of(mapped(1, 9, TOOL, remote=True)).is_rooted({"s"}), "its caller is still to come"


def test_what_kind_of_trace_it_is():
    assert tree_of(mapped(1, 0, LLM), mapped(2, 1, DETAIL)).is_bare_call
    assert not tree_of(mapped(2, 1, LLM)).is_bare_call
    assert not tree_of(mapped(1, 0, OTHER)).is_bare_call
    assert tree_of(mapped(1, 0, DETAIL)).is_detail
    assert TraceTree().is_detail
    assert not tree_of(mapped(1, 0, STEP)).is_detail


def test_parents_in_a_circle_end():
    tree = tree_of(mapped(1, 2, LLM), mapped(2, 1, LLM), mapped(3, 3, TOOL))
    assert set(roles(tree, 1, 2, 3)) == {1, 2, 3}
    assert tree.missing_above(tree.node(hex_id(1))) is None


def test_a_deep_chain_is_no_recursion():
    spans = [mapped(n, n - 1, DETAIL) for n in range(5000, 1, -1)]
    tree = tree_of(*spans, mapped(1))
    assert roles(tree, 5000, 1)[1] is Role.STEP
    assert tree.outer(tree.node(hex_id(5000))) is tree.node(hex_id(1))


@pytest.mark.parametrize(
    ("told", "same"),
    [
        (Fault("ValueError", "bad"), True),
        (Fault("builtins.ValueError", "bad"), True),
        (Fault("ValueError", ""), True),
        (Fault("RuntimeError", "bad"), True),
        (Fault("ValueError", "worse"), False),
        (Fault("RuntimeError", ""), False),
    ],
)
def test_which_faults_are_the_same(told, same):
    tree = TraceTree()
    tree.tell(Fault("ValueError", "bad"))
    assert tree.told(told) is same


def test_a_forgotten_trace_keeps_how_it_ended():
    tree = tree_of(mapped(1), mapped(2, 1, LLM))
    tree.forget()
    assert len(tree) == 0
    assert len(tree.roots) == 1


def test_nested_tools_of_one_name_with_ids_of_their_own_are_two_calls():
    tree = tree_of(mapped(1), mapped(2, 1, TOOL, name="Agent", call_id="a"))
    for n, call_id in ((3, "b"), (4, "a"), (5, None)):
        add(tree, mapped(n, 2, TOOL, name="Agent", call_id=call_id))
    assert roles(tree, 2, 3, 4, 5) == {2: Role.STEP, 3: Role.STEP, 4: Role.MERGED, 5: Role.MERGED}


def test_a_tool_call_told_from_its_other_side_is_no_second_one():
    tree = tree_of(mapped(1), mapped(2, 1, TOOL, name="mcp__weather__get"))
    add(tree, mapped(3, 2, AGENT, remote=True), "server")
    add(tree, mapped(4, 3, TOOL, name="get"), "server")
    assert roles(tree, 2, 3, 4) == {2: Role.STEP, 3: Role.STEP, 4: Role.SILENT}


def test_a_tool_call_that_a_model_of_the_other_side_may_have_asked_for_is_one():
    tree = tree_of(mapped(1), mapped(2, 1, TOOL, name="delegate"))
    for span in (mapped(3, 2, AGENT, remote=True), mapped(4, 3, LLM), mapped(5, 3, TOOL, name="get")):
        add(tree, span, "worker")
    assert roles(tree, 5) == {5: Role.STEP}


def test_a_parent_that_was_there_before_a_restart_is_no_hole():
    tree = tree_of(mapped(3, 2, LLM))
    tree.was_there(hex_id(2))
    add(tree, mapped(4, 2, LLM))
    assert tree.holes() == {}


def test_of_steps_told_by_records_neither_a_parent_nor_an_agents_end_is_missed():
    tree = tree_of(
        mapped(2, 1, LLM, logged=True),
        mapped(3, kind=AGENT, logged=True, turn=True, notice=True),
        mapped(4, 3, TOOL, logged=True, notice=True),
    )
    assert tree.holes() == {}
    assert [n.id for n in tree.begun()] == [hex_id(4)]
    assert [n.id for n in tree.unended()] == [hex_id(3)]


def test_an_agent_is_over_when_the_last_step_below_it_is():
    tree = tree_of(
        mapped(1, kind=AGENT, logged=True, turn=True, notice=True, start=0, end=0),
        mapped(2, 1, AGENT, logged=True, start=1, end=5),
        mapped(3, 2, LLM, logged=True, start=2, end=7),
        mapped(4, kind=LLM, logged=True, start=3, end=9),
    )
    assert tree.last_of(tree.node(hex_id(2))) is tree.node(hex_id(3))
    assert tree.last_of(tree.node(hex_id(1))) is tree.node(hex_id(4))
    assert tree.last_of(tree.node(hex_id(4))) is tree.node(hex_id(4))
