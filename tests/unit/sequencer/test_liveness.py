"""Silence is judged by our own clock, and only while that clock ran."""

from __future__ import annotations

from agentrund.sequencer.liveness import Heartbeats


def test_who_is_silent_too_long_is_named():
    beats = Heartbeats(60)
    beats.heard("a", 0)
    beats.heard("b", 30)
    assert beats.silent(60) == []
    assert beats.silent(61) == ["a"]
    beats.heard("a", 61)
    assert beats.silent(91) == ["b"]
    beats.forget("b")
    assert beats.silent(1000) == ["a"]


def test_a_gap_in_our_own_clock_grants_everybody_a_whole_interval():
    beats = Heartbeats(60)
    beats.heard("a", 0)
    beats.grant(10_000)
    assert beats.silent(10_060) == []
    assert beats.silent(10_061) == ["a"]
