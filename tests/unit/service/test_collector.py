"""The collector as a whole: what was begun is ended, however far the start came."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing, suppress

import pytest

from agentrund.model.errors import Unavailable
from agentrund.service import collector as collector_module
from agentrund.service.collector import Collector
from agentrund.service.config import Settings
from agentrund.service.exposure import Demands
from agentrund.service.listener import Listener
from agentrund.service.settings_types import Address
from agentrund.store.root import Root


@pytest.fixture
def jumping(monkeypatch):
    """Every beat comes six seconds after the one before."""
    now, left = 1000.0, 30

    async def sleep(_seconds: float) -> None:
        nonlocal now, left
        now, left = now + 6, left - 1
        if not left:
            raise asyncio.CancelledError

    monkeypatch.setattr(collector_module.asyncio, "sleep", sleep)
    monkeypatch.setattr(collector_module.Clock, "monotonic", lambda _clock: now)


def test_that_our_clock_jumps_at_every_beat_is_said_once_a_minute(tmp_path, monkeypatch, caplog, jumping):
    monkeypatch.setenv("AGENTRUND_SPOOL", str(tmp_path / "spool"))

    class Door:
        def sweep(self) -> None:
            """Nobody is connected."""

    async def story() -> None:
        settings = Settings(root=tmp_path / "root", otlp_grpc=None)
        with closing(Root.open(settings.root, {"pid": 1})) as root, closing(Listener(tmp_path / "s")) as door:
            collector = Collector(settings, root, door, Demands())
            with suppress(asyncio.CancelledError):
                await collector._run_beat(Door())
            monkeypatch.undo()
            await collector.stop()

    asyncio.run(story())
    said = [r.message for r in caplog.records if "our own clock jumped" in r.message]
    assert [line.endswith("more since the last such line)") for line in said] == [False, True, True]


def test_a_start_that_fails_half_way_leaves_nothing_at_work(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTRUND_SPOOL", str(tmp_path / "spool"))

    async def story(port: int) -> None:
        settings = Settings(root=tmp_path / "root", otlp_grpc=Address("127.0.0.1", port))
        with closing(Root.open(settings.root, {"pid": 1})) as root, closing(Listener(tmp_path / "s")) as door:
            collector = Collector(settings, root, door, Demands())
            with pytest.raises(Unavailable):
                await collector.start()
            assert await collector.stop()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    with socket.create_server(("127.0.0.1", 0)) as taken:
        asyncio.run(story(taken.getsockname()[1]))
