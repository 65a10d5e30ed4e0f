"""Random lives of a run: inputs for the run machine, as hypothesis strategies, and how to play them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from agentrund.model.event import Event
from agentrund.model.source import Arrival, Identity
from agentrund.sequencer.run import RunMachine, Step
from agentrund.sequencer.states import State, state_of

SOURCES = ("a", "b", "c")
OPENER_TYPES = ("agent.start", "llm.prompt", "tool.call")
CLOSER_TYPES = ("agent.end", "llm.response", "llm.error", "tool.result", "tool.error")


@dataclass(frozen=True)
class Play:
    """One input: what is called, for which source, with which facts."""

    what: str
    source: str
    facts: tuple[Any, ...] = ()


def fixed_iso(ts: float) -> str:
    """A local time string without a time zone database."""
    milli = round(ts * 1000)
    return f"2026-01-01T{milli // 3_600_000 % 24:02d}:{milli // 60_000 % 60:02d}:{milli // 1000 % 60:02d}.{milli % 1000:03d}+00:00"


spans = st.sampled_from(["1", "2", "3", None])
events = st.builds(
    lambda kind, span, parent, skip, resend, error: Play(
        "feed", "", (kind, span, parent, skip, resend, error)
    ),
    st.sampled_from([*OPENER_TYPES, *CLOSER_TYPES, "log", "custom.thing"]),
    spans,
    st.sampled_from(["1", "2", "a/1", "nobody/9", None]),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
)
others = st.sampled_from(
    [
        Play("arrive", ""),
        Play("arrive", ""),
        Play("lost", "", (2,)),
        Play("refuse", ""),
        Play("leave", "", ("bye",)),
        Play("leave", "", ("process exited: killed by SIGKILL",)),
        Play("run_end", "", ("ok",)),
        Play("run_end", "", (None,)),
        Play("finish", "", (None,)),
    ]
)
plays = st.lists(
    st.builds(
        lambda play, source: Play(play.what, source, play.facts),
        st.one_of(events, events, others),
        st.sampled_from(SOURCES),
    ),
    max_size=60,
)


class Player:
    """Plays inputs on a machine as the service would: sources arrive before they speak, counters go up."""

    def __init__(self, machine: RunMachine) -> None:
        self.machine = machine
        self.counters = dict.fromkeys(SOURCES, 0)
        self.now = 1_800_000_000.0

    def play(self, play: Play) -> list[Step]:  # noqa: PLR0911 - one return an input
        """Feed one input; what cannot happen in that state gives nothing."""
        self.now += 0.25
        machine, source = self.machine, play.source
        if play.what == "finish":
            return (
                []
                if state_of(machine.state) is State.NEW
                else machine.finish(play.facts[0], "idle", self.now)
            )
        steps: list[Step] = []
        if source not in machine.state.sources or (play.what == "arrive" and self._may_arrive(source)):
            who = Arrival(source, Identity(100, 5, "boot", 0), session_id="s")
            steps += machine.arrive(who, self.now)
        if play.what == "feed":
            return steps + self._feed(source, play.facts)
        if play.what == "run_end":
            n = self._next(source)
            return steps + machine.feed(source, Event("run.end", status=play.facts[0], n=n), self.now)
        if play.what == "lost":
            self.counters[source] += play.facts[0]
            return steps + machine.lost(source, self.counters[source], self.now)
        if play.what == "refuse":
            return steps + machine.refuse(source, "bad_event", "no", self._next(source), self.now)
        if play.what == "leave":
            return steps + machine.leave(source, play.facts[0], self.now)
        return steps

    def _may_arrive(self, source: str) -> bool:
        """A source of an attempt that has ended stays there; only a new one resumes."""
        state = self.machine.state
        known = state.sources[source]
        return state.is_open and known.attempt == state.attempts[-1].n

    def _next(self, source: str) -> int:
        self.counters[source] += 1
        return self.counters[source]

    def _feed(self, source: str, facts: tuple[Any, ...]) -> list[Step]:
        kind, span, parent, skip, resend, error = facts
        if resend and self.counters[source]:
            n = self.counters[source]
        else:
            self.counters[source] += skip
            n = self._next(source)
        payload: dict[str, Any] = {"source_n": f"{source}{n}"}
        if error:
            payload["error_type"] = "ValueError"
        if kind == "log":
            payload["level"] = "info"
        event = Event(kind, name="x", span=span, parent=parent, payload=payload, n=n)
        return self.machine.feed(source, event, self.now)
