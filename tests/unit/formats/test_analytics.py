"""analytics.json: counts, tokens, costs and whose they are."""

from __future__ import annotations

import json

import pytest

from agentrund.formats import agents, analytics
from agentrund.formats.derive import derive
from support.records import Book
from support.run_root import seed_book


def facts(book):
    return json.loads(derive(book.records).analytics)


def begun(**metadata):
    book = Book()
    book.start(**metadata)
    return book


def llm(book, agent=None, *, name="m", opening=None, closing=None, kind="llm.response"):
    call = book.add("llm.prompt", name, opening or {}, parent=agent)
    return book.add(kind, name, closing or {}, parent=call)


def test_the_document_begins_with_the_seeds_keys_in_its_order():
    got = facts(seed_book())
    assert list(got)[:16] == [
        "run_id", "session_id", "status", "framework", "framework_version", "model", "started_at", "ended_at",
        "wall_sec", "active_sec", "attempts", "llm_calls", "tool_calls", "tool_calls_by_name", "errors",
        "errors_omitted",
    ]  # fmt: skip
    assert list(got["cost"])[:4] == ["input_tokens", "output_tokens", "cost_usd", "by_agent"]


def test_the_seeds_story():
    got = facts(seed_book())
    assert (got["status"], got["attempts"], got["session_id"]) == ("failed", 2, "sess_kaggle_eda_7c")
    assert (got["started_at"], got["ended_at"]) == (
        "2026-08-30T14:22:33.000+05:45",
        "2026-08-30T14:31:35.620+05:45",
    )
    assert (got["wall_sec"], got["active_sec"]) == (542.62, 76.62)
    assert (got["llm_calls"], got["tool_calls"]) == (2, 7)
    assert got["tool_calls_by_name"] == {"read_file": 5, "run_python": 2}
    assert got["errors"] == [
        {"seq": 20, "type": "TimeoutError", "name": "run_python", "message": "exceeded 30s"},
        {
            "seq": 25,
            "type": "RuntimeError",
            "name": "executor",
            "message": "executor gave up after 2 attempts",
        },
    ]
    cost = got["cost"]
    assert (cost["input_tokens"], cost["output_tokens"], cost["cost_usd"]) == (69740, 1286, 0.0205)
    assert cost["by_agent"]["triage"] == {
        "llm_calls": 1, "tool_calls": 0, "input_tokens": 400, "output_tokens": 386, "cost_usd": 0.0005,
    }  # fmt: skip
    assert cost["by_agent"]["planner"]["cost_usd"] == 0.02
    assert got["agents"]["planner"]["tools"]["run_python"] == {
        "calls": 2, "errors": 1, "cost_usd": None, "sec": 30.0,
    }  # fmt: skip
    assert got["slowest"][0] == {"seq": 19, "type": "tool.call", "name": "run_python", "sec": 30.0}
    assert got["longest_gap"] == {"after_seq": 19, "before_seq": 20, "sec": 30.0}
    assert [(step["seq"], step["attempt"], step["age"]) for step in got["open_at_end"]] == [
        (6, 1, 40.3),
        (21, 1, 1.0),
    ]
    assert got["dropped"] == {"lost": 3, "refused": 0, "dropped_attributes": 0, "rejected_spans": 0}


# -- tokens ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opening", "closing", "tokens_in", "cached"),
    [
        ({"tokens_in": 100}, {}, 100, 0),
        ({"tokens_in": 100}, {"tokens_in": 120}, 120, 0),
        ({"tokens_in": 130_213}, {"cached_tokens": 128_955}, 130_213, 128_955),
        ({}, {"tokens_in": 5, "cache_read_input_tokens": 128_955, "cache_creation_input_tokens": 1253},
         130_213, 128_955),
        ({}, {"tokens_in": 5000, "cache_read_input_tokens": 2000}, 7000, 2000),
        ({}, {"tokens_in": 5, "cached_tokens": 128_955}, 128_960, 128_955),
        ({}, {"tokens_in": True, "tokens_out": "many"}, 0, 0),
        ({}, {"tokens_in": -5}, 0, 0),
    ],
)  # fmt: skip
def test_input_tokens_are_counted_once_however_the_sender_counts(opening, closing, tokens_in, cached):
    book = begun()
    llm(book, opening=opening, closing=closing)
    cost = facts(book)["cost"]
    assert (cost["input_tokens"], cost["cached_input_tokens"]) == (tokens_in, cached)


def test_a_failed_call_and_one_that_never_ended_have_read_their_prompts():
    book = begun()
    agent = book.add("agent.start", "a")
    llm(book, agent, opening={"tokens_in": 10}, closing={"error_type": "E"}, kind="llm.error")
    book.add("llm.prompt", "m", {"tokens_in": 7}, parent=agent)
    got = facts(book)
    assert got["cost"]["input_tokens"] == 17
    assert got["cost"]["by_agent"]["a"]["input_tokens"] == 17


# -- costs -----------------------------------------------------------------------------------------------


def test_leaf_costs_count_and_roll_ups_do_not():
    book = begun()
    agent = book.add("agent.start", "a")
    for _ in range(3):
        llm(book, agent, closing={"cost_usd": 0.1})
    book.add("agent.end", "a", {"cost_usd": 0.3}, parent=agent)
    book.end(cost_usd=0.3)
    cost = facts(book)["cost"]
    assert (cost["cost_usd"], cost["reported_usd"], cost["from_rollup"]) == (0.3, 0.3, False)
    assert cost["by_agent"]["a"]["cost_usd"] == 0.3


def test_without_leaf_costs_the_outermost_roll_ups_count():
    book = begun()
    outer = book.add("agent.start", "outer")
    inner = book.add("agent.start", "inner", parent=outer)
    book.add("agent.end", "inner", {"cost_usd": 0.4}, parent=inner)
    book.add("agent.end", "outer", {"cost_usd": 1.0}, parent=outer)
    alone = book.add("agent.start", "alone")
    book.add("agent.end", "alone", {"cost_usd": 0.5}, parent=alone)
    got = facts(book)
    cost = got["cost"]
    assert (cost["cost_usd"], cost["reported_usd"], cost["from_rollup"]) == (1.5, None, True)
    assert {name: agent["cost_usd"] for name, agent in cost["by_agent"].items()} == {
        "outer": 0.6, "inner": 0.4, "alone": 0.5,
    }  # fmt: skip
    assert got["agents"]["outer"]["rollup_usd"] == 1.0


def test_a_roll_up_within_an_agent_that_never_ended_counts():
    book = begun()
    outer = book.add("agent.start", "outer")
    inner = book.add("agent.start", "inner", parent=outer)
    book.add("agent.end", "inner", {"cost_usd": 0.4}, parent=inner)
    book.die()
    assert facts(book)["cost"]["cost_usd"] == 0.4


def test_a_roll_up_that_ends_after_the_agent_around_it_is_not_counted_twice():
    book = begun()
    outer = book.add("agent.start", "outer")
    inner = book.add("agent.start", "inner", parent=outer)
    book.add("agent.end", "outer", {"cost_usd": 1.0}, parent=outer)
    book.add("agent.end", "inner", {"cost_usd": 0.4}, parent=inner)
    assert facts(book)["cost"]["cost_usd"] == 1.0


def test_unknown_cost_is_null_and_a_stated_zero_is_zero():
    book = begun()
    llm(book, closing={"tokens_out": 5, "model": "new-model"})
    cost = facts(book)["cost"]
    assert (cost["cost_usd"], cost["unpriced"]) == (None, ["new-model"])
    llm(book, closing={"tokens_out": 5, "model": "free-model", "cost_usd": 0})
    cost = facts(book)["cost"]
    assert (cost["cost_usd"], cost["unpriced"]) == (0.0, ["new-model"])


def test_an_agent_that_ran_twice_is_summed():
    book = begun()
    for _ in range(2):
        agent = book.add("agent.start", "a")
        llm(book, agent, closing={"cost_usd": 0.5})
        book.add("agent.end", "a", {}, parent=agent, dur_ms=1500)
    got = facts(book)["agents"]["a"]
    assert (got["runs"], got["cost_usd"], got["llm_calls"], got["sec"]) == (2, 1.0, 2, 3.0)


def test_a_call_inside_a_tool_belongs_to_the_agent_around_the_tool():
    book = begun()
    agent = book.add("agent.start", "a")
    tool = book.add("tool.call", "t", parent=agent)
    llm(book, tool, name="chat gpt-x", closing={"cost_usd": 0.5, "tokens_out": 9})
    assert list(facts(book)["cost"]["by_agent"]) == ["a"]


def test_a_child_that_comes_after_its_parents_end_still_belongs_to_it():
    book = begun()
    agent = book.add("agent.start", "a")
    book.add("agent.end", "a", parent=agent)
    llm(book, agent, closing={"cost_usd": 0.5})
    assert facts(book)["cost"]["by_agent"]["a"]["cost_usd"] == 0.5


def test_a_call_outside_any_agent_goes_under_its_own_name_and_a_tool_under_a_dash():
    book = begun()
    llm(book, name="triage", closing={"cost_usd": 0.0005})
    book.add("tool.call", None)
    got = facts(book)
    assert list(got["cost"]["by_agent"]) == ["triage"]
    assert list(got["agents"]) == ["triage", "-"]
    assert got["tool_calls_by_name"] == {"-": 1}


def test_parallel_calls_of_one_tool_are_paired_by_number():
    book = begun()
    one = book.add("tool.call", "t")
    two = book.add("tool.call", "t")
    book.add("tool.result", "t", parent=two, dur_ms=9000)
    book.add("tool.error", "t", {"error_type": "E"}, parent=one, dur_ms=10)
    got = facts(book)
    assert [(step["seq"], step["sec"]) for step in got["slowest"]] == [(two, 9.0), (one, 0.01)]


# -- holes and caps --------------------------------------------------------------------------------------


def test_every_hole_is_summed():
    book = begun()
    for payload, src in [
        ({"lost": 12}, {"k": "sock", "id": "a1", "lost_from": 1, "lost_to": 12}),
        ({"refused": "bad_event"}, {"k": "sock", "id": "a1", "n": 13}),
        ({"refused": "bad_json"}, {"k": "sock", "id": "a1"}),
        ({"dropped_attributes": 57}, {"k": "otlp"}),
        ({"rejected_spans": 1, "dropped_links": 2}, {"k": "otlp"}),
    ]:
        book.add("log", None, {"level": "WARNING", "message": "x"} | payload, status="WARNING", src=src)
    assert facts(book)["dropped"] == {
        "lost": 12, "refused": 2, "dropped_attributes": 57, "rejected_spans": 1, "dropped_links": 2,
    }  # fmt: skip


def test_what_a_senders_sdk_has_dropped_is_a_hole():
    book = begun()
    otlp = {"k": "otlp", "id": "p", "rq": 1, "i": 0}
    for dropped in ({"attributes": 3}, {"attributes": 2, "events": 1, "links": 4}, {"attributes": "x"}, 7):
        book.add("log", "lib", {"message": "x", "otel": {"dropped": dropped}}, src=otlp)
    book.add("tool.call", "t", {"otel": {"dropped": {"attributes": 4}}}, src=otlp)
    book.add("log", "lib", {"otel": {"dropped": {"attributes": 9}}}, src={"k": "sock", "id": "a", "n": 1})
    found = facts(book)["dropped"]
    assert (found["dropped_attributes"], found["dropped_events"], found["dropped_links"]) == (9, 1, 4)


def test_an_agents_own_log_is_no_hole():
    book = begun()
    book.add("log", "app", {"level": "WARNING", "lost": 5, "refused": "x", "dropped_attributes": 5})
    book.add("log", None, {"level": "WARNING", "lost": 5}, src={"k": "sock", "id": "a1", "n": 1})
    assert set(facts(book)["dropped"].values()) == {0}


def test_the_errors_list_stops_and_says_so(monkeypatch):
    monkeypatch.setattr(analytics, "ERRORS_MAX", 3)
    book = begun()
    for _ in range(5):
        book.add("error", None, {"error_type": "E", "error": "x"})
    got = facts(book)
    assert ([error["seq"] for error in got["errors"]], got["errors_omitted"]) == ([2, 3, 4], 2)


def test_any_number_of_names_is_summed_under_a_bounded_number_of_them(monkeypatch):
    monkeypatch.setattr(agents, "_AGENTS_MAX", 3)
    monkeypatch.setattr(agents, "TOOLS_MAX", 3)
    monkeypatch.setattr(analytics, "TOOLS_MAX", 3)
    book = begun()
    for number in range(10):
        agent = book.add("agent.start", f"a{number}")
        book.add("tool.call", f"t{number}", parent=agent)
    got = facts(book)
    assert got["tool_calls_by_name"] == {"t0": 1, "t1": 1, "t2": 1, "(other names)": 7}
    assert len(got["agents"]) == 4
    assert sum(agent["tool_calls"] for agent in got["agents"].values()) == 10


def test_hostile_numbers_end_nothing():
    book = begun()
    llm(book, closing={"cost_usd": 10**400, "tokens_out": 10**400, "tokens_in": 10**30})
    book.add("tool.result", "t", {}, dur_ms=10**400 // 10**380)
    cost = facts(book)["cost"]
    assert (cost["cost_usd"], cost["output_tokens"], cost["input_tokens"]) == (None, 0, 10**30)


# -- status ----------------------------------------------------------------------------------------------


def test_status_is_the_newest_attempts_outcome():
    book = begun()
    assert facts(book)["status"] == "running"
    book.die()
    assert facts(book)["status"] == "crashed"
    book.resume()
    assert facts(book)["status"] == "running"
    book.add("tool.error", "t", {"error_type": "E"})
    book.end("ok")
    assert facts(book)["status"] == "ok"


def test_late_events_count_but_take_no_time():
    book = begun()
    book.end("ok", at=5)
    book.add("tool.call", "t", at=500, src={"k": "sock", "id": "a1", "late": True})
    got = facts(book)
    assert (got["tool_calls"], got["active_sec"], got["wall_sec"]) == (1, 5.0, 5.0)


def test_a_spilled_message_shows_its_beginning():
    book = begun()
    spilled = {"ref": "blobs/12345678.txt", "preview": "it broke", "bytes": 9000}
    book.add("error", None, {"error_type": "E", "error": spilled})
    assert facts(book)["errors"][0]["message"] == "it broke"
