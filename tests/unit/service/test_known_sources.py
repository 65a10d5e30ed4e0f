"""Which run a source belongs to, after its end too: for a while, and of so many."""

from __future__ import annotations

from agentrund.service import known_sources
from agentrund.service.known_sources import REMEMBER_S, SLACK_S, KnownSources


def test_a_source_is_known_for_an_hour_after_the_end_of_its_run():
    known = KnownSources()
    known.add("a", "one")
    known.ended("one", ["a"], 0.0)
    known.expire(REMEMBER_S)
    assert known.run_of("a") == "one"
    known.expire(REMEMBER_S + SLACK_S + 1)
    assert known.run_of("a") is None


def test_runs_without_a_source_that_is_known_take_no_place_from_those_with_one(monkeypatch):
    monkeypatch.setattr(known_sources, "REMEMBERED", 2)
    known = KnownSources()
    known.add("a", "one")
    known.ended("one", ["a"], 0.0)
    for n in range(10):
        known.ended(f"told over OTLP {n}", ["service"], 1.0)
    known.expire(2.0)
    assert known.run_of("a") == "one"


def test_of_many_runs_the_last_are_remembered(monkeypatch):
    monkeypatch.setattr(known_sources, "REMEMBERED", 2)
    known = KnownSources()
    for n in range(4):
        known.add(f"s{n}", f"run {n}")
        known.ended(f"run {n}", [f"s{n}"], float(n))
    known.expire(4.0)
    assert [known.run_of(f"s{n}") for n in range(4)] == [None, None, "run 2", "run 3"]
