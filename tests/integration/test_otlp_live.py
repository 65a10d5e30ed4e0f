"""Recorded programs live again and send to a real collector; ``make otlp`` is the long form of this.

Every capture goes through one door in one arrangement, the next one through the next: all of them together
through all twelve.
"""

from __future__ import annotations

import itertools

import pytest

from agentrund.model.otlp import Signal
from otlp_live.play import ARRANGEMENTS, DOORS, Case, apart, play
from otlp_live.reader import RunFolder, differences, truth
from support import otlp_build as build
from support.daemon import Daemon
from support.otlp_captures import load, names
from support.otlp_doors import OK, send
from support.waiting import until

HISTORIES = 40
HISTORY_BYTES = 300_000


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0", http="127.0.0.1:0") as running:
        yield running


@pytest.mark.timeout(300)
def test_recorded_programs_give_their_truth_through_the_doors(tmp_path):
    if not names():
        pytest.skip("the recorded OTLP captures are not here (AGENTRUND_FIXTURES)")
    ways = itertools.cycle(itertools.product(DOORS, ARRANGEMENTS))
    captures = apart(map(load, names()))
    played = play([Case(capture, *way) for capture, way in zip(captures, ways, strict=False)], tmp_path)
    found = {outcome.case.capture.name: outcome.differences() for outcome in played.outcomes}
    assert {name: differs for name, differs in found.items() if differs} == {}
    assert played.problems == []


# -- what the reader says --------------------------------------------------------------------------------


CALL = [
    {"type": "run.start", "seq": 1, "ts": 1.0, "name": None, "parent_seq": None, "payload": {"pid": 1}},
    {"type": "llm.prompt", "seq": 2, "ts": 1.0, "name": "a", "parent_seq": None, "payload": {"tokens_in": 7}},
    {"type": "llm.response", "seq": 3, "ts": 2.0, "name": "a", "parent_seq": 2, "payload": {"tokens_out": 2}},
    {"type": "source.exit", "seq": 4, "ts": 3.0, "name": None, "parent_seq": None, "payload": {
        "cause": "process exited: killed by SIGKILL", "open": [{"type": "tool.call", "name": "t"}]}},
]  # fmt: skip
BANNER = "---- attempt 1 ended at 10:00:00 without run.end (process exited: killed by SIGKILL) ----\n"
EXPECTED = {
    "runs": 1,
    "llm_calls": 1,
    "tokens_in": 7,
    "tokens_out": 2,
    "run_status": "crashed",
    "ended_without_run_end": True,
    "in_flight": ["t (named in the choice event)", "u (unknown to the server)"],
}


def read(transcript: str = BANNER) -> RunFolder:
    return RunFolder(CALL, {"attempts": [{"outcome": "crashed"}]}, transcript)


def test_a_run_as_it_was_expected_differs_in_nothing():
    assert differences(EXPECTED, truth([read()])) == []
    assert differences({**EXPECTED, "spans": 99}, truth([read()])) == [], "that is of the requests"


@pytest.mark.parametrize("key", EXPECTED)
def test_whatever_is_not_as_expected_is_said(key):
    other = {**EXPECTED, key: ["x"] if key == "in_flight" else "something else"}
    assert [text.partition(":")[0] for text in differences(other, truth([read()]))] == [key]


def test_an_expectation_nobody_reads_is_a_difference():
    assert differences({**EXPECTED, "news": 1}, truth([read()])) == ["news: expected 1, found None"]


@pytest.mark.parametrize("transcript", ["", BANNER + "#0005 more\n", BANNER.replace("KILL", "TERM")])
def test_a_banner_has_to_be_the_last_that_is_said(transcript):
    (text,) = differences(EXPECTED, truth([read(transcript)]))
    assert text.startswith("ended_without_run_end")


# -- large batches ---------------------------------------------------------------------------------------


def histories() -> bytes:
    """A request of 12 MB: no exporter splits one by its size."""
    calls = [
        build.span(n, 1, attributes={"gen_ai.operation.name": "chat", "gen_ai.prompt": f"{n} " * (HISTORY_BYTES // 3)})
        for n in range(10, 10 + HISTORIES)
    ]  # fmt: skip
    return build.traces(*calls, build.span(1, name="agent"), resource={"service.name": "talkative"})


@pytest.mark.parametrize("door", DOORS)
def test_a_batch_of_long_histories_is_taken_as_it_is(daemon, door):
    body = histories()
    assert len(body) >= HISTORIES * HISTORY_BYTES
    answer = send(daemon, door, Signal.TRACES, body)
    assert (answer.kind, answer.rejected) == (OK, 0)
    prompts = until(
        lambda: (
            daemon.run_ids()
            and len(found := [r for r in daemon.trace() if r["type"] == "llm.prompt"]) == HISTORIES
            and found
        ),
        "every call",
    )
    for prompt in prompts:
        text = (daemon.run_dir() / prompt["payload"]["text_ref"]).read_text()
        assert len(text) == HISTORY_BYTES
        assert len(set(text.split())) == 1
