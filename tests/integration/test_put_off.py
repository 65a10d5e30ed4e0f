"""An acknowledged request that cannot be read again for a while is not lost for it, and holds nobody up."""

from __future__ import annotations

import asyncio
import errno
from contextlib import closing

import pytest

from agentrund.model.otlp import Encoding, Peer, Signal
from agentrund.service.collector import Collector
from agentrund.service.config import Settings
from agentrund.service.exposure import Demands
from agentrund.service.listener import Listener
from agentrund.store.root import Root
from support import otlp_build as build


def request(n: int) -> bytes:
    one = build.span(1, attributes={"gen_ai.operation.name": "chat", "note": f"request {n}"})
    one.trace_id = bytes([n]) * 16
    return build.traces(one)


@pytest.mark.parametrize("times", [1, 3])
def test_no_descriptor_to_read_it_with(tmp_path, monkeypatch, caplog, times):
    monkeypatch.setenv("AGENTRUND_SPOOL", str(tmp_path / "spool"))

    async def story() -> tuple[int, int]:
        settings = Settings(root=tmp_path / "root", otlp_grpc=None, http=None)
        with closing(Root.open(settings.root, {"pid": 1})) as root, closing(Listener(tmp_path / "s")) as door:
            collector = Collector(settings, root, door, Demands())
            service = collector.otlp.service
            # Nothing stays in memory: every request is read back.
            monkeypatch.setattr(collector.budget, "limit", 0)
            read, refusals = service._intake.read, [None] * times

            def without_descriptors(rq: int):
                if refusals:
                    refusals.pop()
                    raise OSError(errno.EMFILE, "Too many open files")
                return read(rq)

            monkeypatch.setattr(service._intake, "read", without_descriptors)
            await collector.start()
            for n in (1, 2, 3):
                await service.take(Signal.TRACES, Encoding.PROTOBUF, request(n), Peer(None, None))
            known: list[int] = []

            def decide():
                known.append(len(service._machine.traces))
                return ()

            async with asyncio.timeout(20):
                await service.after_all(decide)
                while service.waiting:  # noqa: ASYNC110 - a counter, nobody tells of it
                    await asyncio.sleep(0.01)
            await collector.stop()
        return len(refusals), known[0]

    assert asyncio.run(story()) == (0, 3), "what is done after all that came is done after what was put off"
    traces = "".join(path.read_text() for path in (tmp_path / "root" / "runs").glob("*/trace.jsonl"))
    for n in (1, 2, 3):
        assert traces.count(f'"request {n}"') == 1
    [told] = [r.message for r in caplog.records if "cannot be read again" in r.message]
    assert told.endswith("Too many open files; it is tried again (said once a minute)")
