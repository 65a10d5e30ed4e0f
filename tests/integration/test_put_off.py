"""An acknowledged request that cannot be read again for a while is not lost for it, and holds nobody up."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import TypeVar

import pytest

from agentrund.model.errors import Unavailable
from agentrund.model.otlp import Encoding, Peer, Signal
from agentrund.receivers.control_sink import RunName
from agentrund.service.collector import Collector
from agentrund.service.config import Settings
from agentrund.service.exposure import Demands
from agentrund.service.listener import Listener
from agentrund.store.root import Root
from support import otlp_build as build

T = TypeVar("T")


def request(n: int, session: str | None = None) -> bytes:
    attributes = {"gen_ai.operation.name": "chat", "note": f"request {n}"}
    if session is not None:
        attributes["gen_ai.conversation.id"] = session
    one = build.span(1, attributes=attributes)
    one.trace_id = bytes([n]) * 16
    return build.traces(one)


async def within(tmp_path, monkeypatch, story: Callable[[Collector], Awaitable[T]]) -> T:
    """What a story gives that is played inside of a collector."""
    monkeypatch.setenv("AGENTRUND_SPOOL", str(tmp_path / "spool"))
    settings = Settings(root=tmp_path / "root", otlp_grpc=None, http=None)
    with closing(Root.open(settings.root, {"pid": 1})) as root, closing(Listener(tmp_path / "s")) as door:
        collector = Collector(settings, root, door, Demands())
        await collector.start()
        try:
            return await story(collector)
        finally:
            await collector.stop()


@pytest.mark.parametrize("times", [1, 3])
def test_no_descriptor_to_read_it_with(tmp_path, monkeypatch, caplog, times):
    async def story(collector: Collector) -> tuple[int, int]:
        service = collector.otlp.service
        # Nothing stays in memory: every request is read back.
        monkeypatch.setattr(collector.budget, "limit", 0)
        read, refusals, known = service._intake.read, [None] * times, []

        def without_descriptors(rq: int):
            if refusals:
                refusals.pop()
                raise OSError(errno.EMFILE, "Too many open files")
            return read(rq)

        def decide():
            known.append(len(service._machine.traces))
            return ()

        monkeypatch.setattr(service._intake, "read", without_descriptors)
        for n in (1, 2, 3):
            await service.take(Signal.TRACES, Encoding.PROTOBUF, request(n), Peer(None, None))
        async with asyncio.timeout(20):
            await service.after_all(decide)
            while service.waiting:  # noqa: ASYNC110 - a counter, nobody tells of it
                await asyncio.sleep(0.01)
        return len(refusals), known[0]

    told = "what is done after all that came is done after what was put off"
    assert asyncio.run(within(tmp_path, monkeypatch, story)) == (0, 3), told
    traces = "".join(path.read_text() for path in (tmp_path / "root" / "runs").glob("*/trace.jsonl"))
    for n in (1, 2, 3):
        assert traces.count(f'"request {n}"') == 1
    [told] = [r.message for r in caplog.records if "cannot be read again" in r.message]
    assert told.endswith("Too many open files; it is tried again (said once a minute)")


def end(collector: Collector, session: str):
    return collector.otlp._control.end(Peer(None, None), RunName(None, session), {}, "ok", "done")


def test_a_request_that_stays_unreadable_holds_up_no_end(tmp_path, monkeypatch):
    async def story(collector: Collector) -> int:
        service = collector.otlp.service
        monkeypatch.setattr(collector.budget, "limit", 0)
        read, bad = service._intake.read, []

        def broken(rq: int):
            bad[:] = bad or [rq]
            if rq == bad[0]:
                raise OSError(errno.EIO, "Input/output error")
            return read(rq)

        monkeypatch.setattr(service._intake, "read", broken)
        await service.take(Signal.TRACES, Encoding.PROTOBUF, request(1), Peer(None, None))
        await service.take(Signal.TRACES, Encoding.PROTOBUF, request(2, "s"), Peer(None, None))
        async with asyncio.timeout(20):
            (info,) = await end(collector, "s")
            assert info.status == "ok"
        left = asyncio.create_task(service.after_all(tuple))
        await asyncio.sleep(0)
        left.cancel()
        async with asyncio.timeout(20):
            await service.after_all(tuple)  # the last to be put off
        return len(service._errands_put_off)

    assert asyncio.run(within(tmp_path, monkeypatch, story)) == 0


def test_an_end_that_is_not_written_is_not_said_to_be(tmp_path, monkeypatch):
    async def story(collector: Collector) -> list[str]:
        service = collector.otlp.service
        await service.take(Signal.TRACES, Encoding.PROTOBUF, request(1, "s"), Peer(None, None))
        await service.after_all(lambda: service._machine.shutdown(service._clock.monotonic()))
        [actor] = collector.runs.open_actors()

        def refused():
            raise Unavailable("no space")

        actor.files.trace.commit = refused
        with pytest.raises(Unavailable, match="is not written yet"):
            await end(collector, "s")
        del actor.files.trace.commit
        async with asyncio.timeout(20):
            while actor.queued:  # noqa: ASYNC110 - the next beat writes it, nobody tells of it
                await asyncio.sleep(0.01)
        return [info.status for info in await end(collector, "s")]

    assert asyncio.run(within(tmp_path, monkeypatch, story)) == ["ok"]
