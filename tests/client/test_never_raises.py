"""Whatever the agent passes and whatever the socket does: nothing comes back but a handle, a value or None."""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import io
import json
import math
import socket
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import PurePosixPath
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import agentrund_client
from agentrund_client import _channel, _guard

from .fake_collector import FakeCollector


class Broken:
    def __repr__(self):
        raise RuntimeError("no repr")

    __str__ = __repr__

    def __getattr__(self, name):
        raise RuntimeError("no attributes")


class BrokenDict(dict):
    def items(self):
        raise RuntimeError("no items")

    def __iter__(self):
        raise RuntimeError("no iteration")


class BrokenModel:
    def model_dump(self):
        raise RuntimeError("no dump")


class BrokenHash:
    def __hash__(self):
        raise RuntimeError("no hash")

    def __eq__(self, other):
        raise RuntimeError("no equality")


class Colour(enum.Enum):
    RED = "red"
    BROKEN = BrokenModel()


@dataclass
class Point:
    x: object = 1
    hidden: object = field(default_factory=Broken)


def huge():
    """More digits than Python writes; hypothesis cannot print it either, so it hides in a list."""
    return [10**5000]


def cyclic():
    loop: list[object] = [1]
    loop.append({"loop": loop})
    return loop


def deep():
    value: object = 1
    for _ in range(2000):
        value = [value]
    return value


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(max_size=50), st.dates(),
    st.sampled_from(["\ud83e", "a\udc00b", "\x00", "\u2028", "name", "run.end", "source.x"]),
    st.sampled_from([-(2**64), 2**63, math.nan, math.inf, -math.inf, Decimal("1.5"), uuid.UUID(int=1)]),
    st.builds(Broken), st.builds(BrokenModel), st.builds(BrokenHash), st.builds(Point), st.sampled_from(list(Colour)),
    st.builds(huge),
    st.builds(cyclic), st.builds(deep), st.just(BrokenDict(a=1)), st.just(object), st.just(len), st.just(ValueError("x")),
    st.just(dt.datetime(2026, 1, 1, tzinfo=dt.UTC)), st.just(PurePosixPath("/a")), st.just(range(3)),
)  # fmt: skip
keys = st.one_of(
    st.text(max_size=5), st.integers(), st.none(), st.tuples(st.integers()), st.binary(max_size=3)
)
junk = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(keys, inner, max_size=3),
        st.tuples(inner),
        st.builds(Point, inner),
    ),
    max_leaves=6,
)
fields = st.dictionaries(
    st.one_of(
        st.sampled_from(
            ["name", "type", "status", "level", "message", "text", "self", "kind", "fault", "place"]
        ),
        st.text(max_size=4),
    ),
    junk,
    max_size=3,
)


def use_everything(a, b, more):
    """Every public call with junk; what `with` blocks raise themselves must pass through unchanged."""
    ar = agentrund_client
    run = ar.run(a if isinstance(a, str | None) else None, task=b, tags=a, guardrails=b, meta=a)
    for step in (
        ar.agent(a, **more), ar.tool(b, **more), ar.llm(a, messages=b, **{"x": b} | _without(more, "messages", "text")),
        ar.llm(messages=a, text=b, name=a, tokens_in=b),
    ):  # fmt: skip
        with contextlib.suppress(ZeroDivisionError), step:
            step.output = a
            step.set(**more)
            step.result(b, **more)
            ar.log(a, b, **_without(more, "level"))
            ar.state(a, **more)
            ar.error(a, b, **more)
            ar.event(a, b, **more)
            step.fail(a, b)
            ar.current()
            ar.child_env()
            if a:
                raise ZeroDivisionError
    ar.traced(lambda x: x)(a)
    run.end(a, **more)
    ar.log("after the end")


def _without(more, *names):
    return {key: value for key, value in more.items() if key not in names}


def strict(line):
    def no(constant):
        raise AssertionError(constant)

    return json.loads(line.decode("utf-8"), parse_constant=no)


COMMON = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@COMMON
@given(a=junk, b=junk, more=fields)
@example(a=ValueError("x"), b=[], more={"self": 1, "fault": 2, "place": 3, "function": 4})
def test_any_input_arrives_as_strict_json(client, collector, a, b, more):
    before = len(collector.raw)
    # Truth of junk is the agent's affair, not ours.
    use_everything(_with_truth(a), b, more)
    assert agentrund_client.flush(20)
    for line in collector.raw[before:]:
        frame = strict(line)
        if "n" in frame:
            assert isinstance(frame["payload"], dict)
            assert all(
                isinstance(frame.get(key, ""), str) for key in ("type", "name", "span", "parent", "status")
            )
    assert collector.jumps == []
    assert agentrund_client.faults() == []


def _with_truth(value):
    try:
        bool(value)
    except Exception:  # noqa: BLE001 - junk
        return None
    return value


class FaultySocket(socket.socket):
    """A socket that fails as the test's plan says, one letter a call."""

    plan: ClassVar[list[str]] = []

    def _next(self, method, *args):
        step = FaultySocket.plan.pop() if FaultySocket.plan else "ok"
        if step == "ok":
            return method(*args)
        if step == "again":
            raise BlockingIOError
        if step == "gone":
            raise BrokenPipeError
        if step == "odd":
            raise OSError(9999, "odd")
        raise ConnectionResetError

    def send(self, data, flags=0):
        if FaultySocket.plan and FaultySocket.plan[-1] == "part":
            FaultySocket.plan.pop()
            return super().send(data[: max(1, len(data) // 3)], flags)
        return self._next(super().send, data, flags)

    def recv(self, size):
        return self._next(super().recv, size)

    def connect(self, path):
        return self._next(super().connect, path)


class Sockets:
    """The socket module as the channel sees it."""

    def __getattr__(self, name):
        return FaultySocket if name == "socket" else getattr(socket, name)


faults = st.lists(st.sampled_from(["ok", "again", "gone", "reset", "part", "odd"]), max_size=30)


@COMMON
@given(plan=faults, a=junk, more=fields, alive=st.booleans())
def test_any_fault_of_the_socket(client, place, monkeypatch, plan, a, more, alive):  # noqa: PLR0917
    monkeypatch.setattr(_channel, "socket", Sockets())
    fake = FakeCollector(f"{place}/s.sock")
    if alive:
        fake.start()
    FaultySocket.plan = list(plan)
    use_everything(_with_truth(a), a, more)
    FaultySocket.plan = []
    from agentrund_client import _process

    recorders = list(_process._recorders)
    monkeypatch.setenv("AGENTRUND_EXIT_TIMEOUT", "20" if alive else "0")
    _process.shut_down()
    if alive:
        for recorder in recorders:
            source = recorder.source
            stored = fake.stored.get(source.id, [])
            spooled = place / "spool" / f"{source.id}.jsonl"
            assert [event["n"] for event in stored] == list(range(1, source.link.n + 1)) or spooled.exists()
        assert fake.jumps == []
    fake.stop()
    assert agentrund_client.faults() == []
    _process._recorders.clear()
    _process._main = None


@pytest.mark.parametrize(
    "call",
    [
        lambda ar: ar.run(1, 2, 3, nonsense=4),
        lambda ar: ar.agent("a", "b"),
        lambda ar: ar.tool(),
        lambda ar: ar.llm("m", "n"),
        lambda ar: ar.log("a", "b", "c"),
        lambda ar: ar.log(level=[]),
        lambda ar: ar.error(),
        lambda ar: ar.state(),
        lambda ar: ar.event(),
        lambda ar: ar.flush("soon"),
        lambda ar: ar.flush(None),
        lambda ar: ar.agent("a").set(1),
        lambda ar: ar.agent("a").result(1, 2),
        lambda ar: ar.agent("a").fail(),
        lambda ar: ar.traced(kind=[]),
        lambda ar: ar.run().end(1, 2),
        lambda ar: ar.run().flush("x"),
        lambda ar: ar.artifact(None),
        lambda ar: ar.artifact("../../x\0/y"),
    ],
)
def test_calls_with_the_wrong_arguments(client, collector, call):
    with client.run():
        handle = call(client)
        if isinstance(handle, client.Step | client.Run):
            with handle:
                pass
    collector.wait(lambda: collector.of_type("run.end"))
    _guard._faults.clear()


def test_a_fault_is_told_once_and_counted(client, collector, capsys, monkeypatch):
    from agentrund_client import _source

    def broken(event):
        raise RuntimeError("inside")

    with monkeypatch.context() as patch:
        patch.setattr(_source, "encode", broken)
        for _ in range(5):
            client.log("x")
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "internal fault in log (RuntimeError)" in err
    assert len(client.faults()) == 5
    monkeypatch.setenv("AGENTRUND_DEBUG", "1")
    with monkeypatch.context() as patch:
        patch.setattr(_source, "encode", broken)
        client.log("x")
    assert "RuntimeError: inside" in capsys.readouterr().err
    _guard._faults.clear()


def test_a_closed_stderr(client, collector, monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    _guard.note_fault(ValueError(), "here")
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr("sys.stderr", stream)
    _guard._told.clear()
    _guard.note_fault(ValueError(), "here")
    _guard._faults.clear()
