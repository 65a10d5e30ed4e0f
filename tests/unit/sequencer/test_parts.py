"""Whatever comes between two parts of what the sequencer does, every request is done, and done once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.model.otlp import Mapped, Peer, SpanKind
from agentrund.sequencer import forgetting, otlp_control, otlp_runs, trace_release
from support.otlp_build import T0, mapped, mapped_log, mapped_metric
from support.otlp_world import World, identity, program

SENDERS = [(1, "127.0.0.1"), (2, "127.0.0.1"), (None, "10.0.0.1")]
TRACES = ["11" * 16, "22" * 16]
SESSIONS = st.sampled_from([None, "s", "t"])


@pytest.fixture(autouse=True)
def _many_parts(monkeypatch):
    monkeypatch.setattr(otlp_runs, "ITEMS_AT_ONCE", 2)
    monkeypatch.setattr(forgetting, "AT_ONCE", 2)
    monkeypatch.setattr(trace_release, "_AT_ONCE", 2)


@st.composite
def requests(draw) -> tuple[int, list[Mapped]]:
    """A sender's number, and items of it; their parents may be missing, or anywhere."""
    sender = draw(st.integers(0, len(SENDERS) - 1))
    items: list[Mapped] = []
    for i in range(draw(st.integers(0, 8))):
        more = {"session": draw(SESSIONS), "resource": program(f"p{sender}")}
        what, n, around = draw(st.integers(0, 4)), draw(st.integers(1, 6)), draw(st.integers(0, 6))
        if what == 0:
            items.append(mapped_metric(i, **more))
        elif what == 1:
            items.append(mapped_log(i, around, trace=draw(st.sampled_from([None, *TRACES])), **more))
        else:
            kind, trace = draw(st.sampled_from(list(SpanKind))), draw(st.sampled_from(TRACES))
            items.append(mapped(n, around, kind, trace=trace, **more))
            items[-1].i = i
    return sender, items


def disturb(world: World, what: int) -> None:
    now, (pid, host) = T0 + world.now, SENDERS[what % len(SENDERS)]
    if what < 2:
        world.exit(SENDERS[what][0])
    elif what < 6:
        peer = Peer(host, 4000, None, identity(pid))
        otlp_control.beat(world.runs, peer, program(f"p{what % len(SENDERS)}"), now)
    elif what == 6:
        world.runs.grant(now)
    elif what == 7:
        world.runs.beats_lost(now + 100, now, 60)


@given(
    st.lists(requests() | st.sampled_from([0.5, 3.0, 70.0, 4000.0]), max_size=12),
    st.lists(st.integers(0, 20), min_size=1),
    st.sampled_from([1 << 15, 1 << 27]),
)
def test_every_request_is_done_once(said, between, held_bytes):
    world = World(held_bytes=held_bytes)
    disturbances = iter(between * 200)
    for rq, one in enumerate(said):
        if isinstance(one, float):
            world.now += one
            parts = world.runs.tick(T0 + world.now)
        else:
            pid, host = SENDERS[one[0]]
            peer = Peer(host, 4000, None, identity(pid))
            parts = world.runs.take(rq, T0 + world.now, peer, one[1], T0 + world.now)
        for part in parts:
            world.perform(part)
            disturb(world, next(disturbances, 20))
    world.shut_down()
    assert sorted(world.executor.done) == [rq for rq, one in enumerate(said) if not isinstance(one, float)]
