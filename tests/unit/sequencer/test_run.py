"""The run machine: numbers without gaps, replay equals living, ends as the table says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agentrund.formats import trace_jsonl
from agentrund.model import run_state
from agentrund.model.event import Event, Record
from agentrund.model.run_state import RunState
from agentrund.model.source import Arrival, Identity
from agentrund.sequencer.run import RunMachine
from agentrund.sequencer.states import TABLE, Act, Input, State, state_of
from support.machine_plays import Play, Player, fixed_iso, plays

RUN = "20260101_000000_0001"


def machine() -> RunMachine:
    return RunMachine(RunState(RUN), fixed_iso)


def lived(history: list[Play]) -> tuple[RunMachine, list[Record]]:
    player = Player(machine())
    return player.machine, [step.record for play in history for step in player.play(play)]


def replayed(records: list[Record]) -> RunState:
    state = RunState(RUN)
    for record in records:
        state.apply(trace_jsonl.decode(trace_jsonl.encode(record)))
    return state


@given(plays)
def test_seq_has_no_gap_over_any_interleaving(history):
    _, records = lived(history)
    assert [record.seq for record in records] == list(range(1, len(records) + 1))


@given(plays)
def test_replay_equals_living(history):
    living, records = lived(history)
    assert replayed(records) == living.state


@given(plays, st.data())
def test_a_machine_restarted_anywhere_goes_on_with_the_same_records(history, data):
    _, uninterrupted = lived(history)
    cut = data.draw(st.integers(0, len(history)))
    player = Player(machine())
    records = [step.record for play in history[:cut] for step in player.play(play)]
    player.machine = RunMachine(replayed(records), fixed_iso)
    records += [step.record for play in history[cut:] for step in player.play(play)]
    assert records == uninterrupted


@given(plays)
def test_an_event_is_stored_once_and_in_the_order_of_its_source(history):
    _, records = lived(history)
    for source in "abc":
        numbers = [r.src["n"] for r in records if r.src and r.src["id"] == source and "n" in r.src]
        assert numbers == sorted(set(numbers))


@given(plays)
def test_every_number_of_a_source_is_stored_refused_or_recorded_as_lost(history):
    living, records = lived(history)
    for source, known in living.state.sources.items():
        settled: set[int] = set()
        for record in records:
            src = record.src or {}
            if src.get("id") == source and "n" in src:
                settled.add(src["n"])
            if src.get("id") == source and "lost_from" in src:
                settled.update(range(src["lost_from"], src["lost_to"] + 1))
        ends = sum(
            r.type == "source.exit" and r.payload["cause"] == "run.end" and r.payload["source"] == source
            for r in records
        )
        assert len(settled) + ends == known.high_water


@given(plays)
def test_whatever_is_sent_again_changes_nothing(history):
    living, records = lived(history)
    before = replayed(records)
    for record in records:
        src = record.src or {}
        if "n" in src:
            again = Event(record.type, name=record.name, payload=record.payload, n=src["n"])
            assert living.feed(src["id"], again, 1.9e9) == []
        if "lost_to" in src:
            assert living.lost(src["id"], src["lost_to"], 1.9e9) == []
    assert living.state == before


WRITES = {
    Act.NOTHING: [],
    Act.EXIT: ["source.exit"],
    Act.EXIT_THEN_END: ["source.exit", "run.end"],
    Act.END: ["run.end"],
}


def exit_input(state: RunState, source: str, cause: str) -> Input | None:
    """What the going of a source is to a run; None where it is nothing: it had gone, or was of an earlier attempt."""
    known, attempt = state.sources[source], state.attempts[-1]
    if known.left is not None or known.attempt != attempt.n:
        return None
    if any(other.id != source for other in state.live_sources()):
        return Input.EXIT_OTHERS_LEFT
    return Input.EXIT_LAST_CLEAN if cause == "bye" and not attempt.deaths else Input.EXIT_LAST_UNCLEAN


@given(plays)
def test_ends_are_what_the_table_says(history):
    player = Player(machine())
    for play in history:
        state = player.machine.state
        before, given_input = state_of(state), None
        if play.what == "leave" and play.source in state.sources:
            given_input = exit_input(state, play.source, play.facts[0])
        elif play.what == "finish" and before is not State.NEW:
            given_input = Input.FINISH
        steps = player.play(play)
        if given_input is not None:
            act, after = TABLE[before, given_input]
            assert [step.record.type for step in steps] == WRITES[act]
            assert state_of(player.machine.state) is after


@given(plays)
def test_an_open_attempt_has_a_live_source(history):
    living, _ = lived(history)
    state = living.state
    assert not state.is_open or state.live_sources()


@given(plays)
def test_parents_are_earlier_openers(history):
    _, records = lived(history)
    openers = {r.seq for r in records if r.type in ("agent.start", "llm.prompt", "tool.call")}
    for record in records:
        assert record.parent_seq is None or (record.parent_seq < record.seq and record.parent_seq in openers)


@given(plays)
@settings(max_examples=50)
def test_no_end_is_recorded_twice(history):
    _, records = lived(history)
    for attempt in {r.attempt for r in records}:
        ends = [r for r in records if r.attempt == attempt and r.type == "run.end" and not r.late]
        assert len(ends) <= 1


def test_the_table_covers_every_input_that_can_happen():
    possible = {(s, i) for s in State for i in Input if s is not State.NEW} | {(State.NEW, Input.ARRIVAL)}
    assert set(TABLE) == possible


# -- single facts of the contract -----------------------------------------------------------------


def arrive(m: RunMachine, source: str = "a", now: float = 1.8e9) -> list[Record]:
    who = Arrival(source, Identity(7, 8, "boot", 0), session_id="s", metadata={"task": "t"})
    return [step.record for step in m.arrive(who, now)]


def feed(m: RunMachine, event: Event, source: str = "a", now: float = 1.8e9 + 1) -> list[Record]:
    return [step.record for step in m.feed(source, event, now)]


def test_the_first_arrival_starts_the_run_with_all_it_said():
    [start] = arrive(machine())
    assert start.type == "run.start"
    assert list(start.payload) == ["session_id", "task", "source", "pid", "pid_start", "boot_id", "uid"]
    assert (start.name, start.parent_seq, start.src, start.status) == (None, None, None, "ok")


def test_a_closing_event_names_its_opener_and_gets_its_duration():
    m = machine()
    arrive(m)
    [call] = feed(m, Event("tool.call", "f", span="1", n=1), now=1.8e9)
    [result] = feed(m, Event("tool.result", "f", span="1", n=2), now=1.8e9 + 1.5)
    assert (result.parent_seq, result.dur_ms) == (call.seq, 1500)


def test_a_closer_of_another_kind_does_not_close():
    m = machine()
    arrive(m)
    feed(m, Event("tool.call", "f", span="1", n=1))
    [response] = feed(m, Event("llm.response", span="1", n=2))
    assert response.parent_seq is None
    assert [step.span for step in m.state.open_steps("a")] == ["1"]


def test_a_span_of_another_source_is_a_parent():
    m = machine()
    arrive(m)
    arrive(m, "b")
    [start] = feed(m, Event("agent.start", "x", span="9", n=1))
    [child] = feed(m, Event("log", parent="a/9", n=1), source="b")
    assert child.parent_seq == start.seq


def test_a_jump_of_the_counter_is_recorded_as_lost():
    m = machine()
    arrive(m)
    hole, event = feed(m, Event("log", n=5))
    assert (hole.type, hole.status, hole.payload["lost"]) == ("log", "WARNING", 4)
    assert hole.src == {"k": "sock", "id": "a", "lost_from": 1, "lost_to": 4}
    assert event.src["n"] == 5


def test_the_owner_ends_the_run_and_its_extra_keys_cannot_overwrite_totals():
    m = machine()
    arrive(m)
    feed(m, Event("llm.prompt", span="1", n=1))
    [end] = feed(m, Event("run.end", status="weird", payload={"llm_calls": 99, "note": "x"}, n=2))
    assert end.status == "failed"
    assert list(end.payload.items()) == [
        ("cost_usd", None),
        ("llm_calls", 1),
        ("tool_calls", 0),
        ("errors", 0),
        ("note", "x"),
    ]


def test_a_members_run_end_is_its_leaving():
    m = machine()
    arrive(m)
    arrive(m, "b")
    [left] = feed(m, Event("run.end", status="ok", n=1), source="b")
    assert (left.type, left.payload["cause"], left.status, left.src) == ("source.exit", "run.end", "ok", None)
    assert m.state.is_open
    assert feed(m, Event("run.end", status="ok", n=1), source="b") == []


def test_the_last_clean_leaving_ends_the_run():
    m = machine()
    arrive(m)
    feed(m, Event("tool.error", payload={"error_type": "E", "error": "x"}, n=1))
    left, end = [step.record for step in m.leave("a", "bye", 1.8e9 + 2)]
    assert (left.type, end.type, end.status, end.payload["cause"]) == (
        "source.exit",
        "run.end",
        "failed",
        "all sources left",
    )


def test_a_death_lists_what_was_open_and_the_last_one_crashes_the_attempt():
    m = machine()
    arrive(m)
    arrive(m, "b")
    feed(m, Event("tool.call", "f", span="1", n=1), now=1.8e9 + 1)
    [one] = m.leave("a", "process exited: killed by SIGKILL", 1.8e9 + 3)
    assert one.record.payload["error_type"] == "SourceExited"
    assert one.record.payload["open"] == [{"seq": 3, "type": "tool.call", "name": "f", "age": 2.0}]
    assert m.state.is_open
    [other] = m.leave("b", "bye", 1.8e9 + 4)
    assert (other.change, m.state.attempts[0].outcome) == ("crashed", "crashed")
    assert "error_type" not in other.record.payload
    assert m.state.attempts[0].cause == "process exited: killed by SIGKILL"


def test_a_resume_goes_on_with_the_next_number():
    m = machine()
    arrive(m)
    m.leave("a", "process exited", 1.8e9 + 1)
    [resumed] = arrive(m, "a2", 1.8e9 + 9)
    assert (resumed.type, resumed.seq, resumed.attempt) == ("run.resume", 3, 2)
    assert list(resumed.payload)[:3] == ["attempt", "resume_seq", "reason"]
    assert (resumed.payload["resume_seq"], resumed.payload["reason"]) == (2, "crashed")


def test_what_comes_after_the_end_is_late_and_keeps_its_attempt():
    m = machine()
    arrive(m)
    m.leave("a", "process exited", 1.8e9 + 1)
    arrive(m, "a2", 1.8e9 + 9)
    [late] = feed(m, Event("log", n=1), now=1.8e9 + 10)
    assert (late.attempt, late.late) == (1, True)
    assert m.state.attempts[0].last_seq == late.seq
    [late_end] = feed(m, Event("run.end", status="ok", n=2), now=1.8e9 + 11)
    assert late_end.late
    assert m.state.attempts[0].outcome == "crashed"
    assert m.state.is_open


def test_an_absurd_time_becomes_the_time_of_arrival():
    m = machine()
    arrive(m)
    [event] = feed(m, Event("log", ts=5.0, n=1), now=1.8e9 + 1)
    assert event.ts == 1.8e9 + 1


def test_a_lingering_attempt_waits_for_the_next_source():
    m = machine()
    arrive(m)
    assert [s.record.type for s in m.leave("a", "bye", 1.8e9 + 1, linger=True)] == ["source.exit"]
    assert m.state.is_open
    assert [r.type for r in arrive(m, "b")] == ["source.join"]
    m.leave("b", "bye", 1.8e9 + 2, linger=True)
    assert [s.record.type for s in m.finish(None, "all sources left", 1.8e9 + 3)] == ["run.end"]


def test_an_otlp_item_is_stored_once():
    m = machine()
    m.arrive(Arrival("p", door="otlp"), 1.8e9)
    item = {"rq": 1, "i": 0, "trace": "t", "span": "s", "half": "open"}
    first = feed(m, Event("tool.call", span="s", src=dict(item)), source="p")
    again = feed(m, Event("tool.call", span="s", src={**item, "rq": 2, "i": 5}), source="p")
    assert (len(first), again) == (1, [])


def test_of_a_long_run_the_last_otlp_items_are_known_again(monkeypatch):
    monkeypatch.setattr(run_state, "OTLP_SEEN", 10)
    m = machine()
    m.arrive(Arrival("p", door="otlp"), 1.8e9)
    for n in range(100):
        item = {"rq": 1, "i": n, "trace": "t", "span": f"s{n}", "half": "open"}
        assert len(feed(m, Event("log", src=dict(item)), source="p")) == 1
        assert feed(m, Event("log", src=dict(item)), source="p") == []
    assert len(m.state.otlp_seen) == 10


def test_a_step_that_was_only_asked_for_names_the_call_that_asked():
    m = machine()
    m.arrive(Arrival("p", door="otlp"), 1.8e9)
    feed(m, Event("llm.prompt", span="c", src={"half": "open"}), source="p")
    feed(m, Event("llm.response", span="c", src={"half": "close"}), source="p")
    asked = {"seq": None, "type": "tool.call", "name": "f", "requested_in": {"source": "p", "span": "c"}}
    other = {**asked, "requested_in": {"source": "p", "span": "gone"}}
    [step] = m.leave("p", "process exited", 1.8e9 + 3, extra_open=[asked, other])
    assert [entry["requested_in"] for entry in step.record.payload["open"]] == [2, None]
