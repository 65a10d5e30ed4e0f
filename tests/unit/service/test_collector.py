"""The collector as a whole: what was begun is ended, however far the start came."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing

import pytest

from agentrund.model.errors import Unavailable
from agentrund.service.collector import Collector
from agentrund.service.config import Settings
from agentrund.service.exposure import Demands
from agentrund.service.listener import Listener
from agentrund.service.settings_types import Address
from agentrund.store.root import Root


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
