"""Deriving off the loop: what changes while a run is derived is derived too, a stop included."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from agentrund.service import finalising
from agentrund.service.finalising import Finalising


def test_a_stop_makes_what_late_events_still_wait_for(monkeypatch):
    sizes, done, go = [], [], threading.Event()

    def finalise(files, size):
        go.wait(10)
        sizes.append(size)
        return size

    monkeypatch.setattr(finalising, "finalise", finalise)
    monkeypatch.setattr(finalising, "LATE_DELAY_S", 3600.0)

    async def stopped() -> bool:
        worker = Finalising(lambda run_id, row: done.append((run_id, row)), pytest.fail)
        for size in (1, 2):
            worker.submit("r", SimpleNamespace(trace=SimpleNamespace(size=size)))
        closing = asyncio.create_task(worker.close())
        go.set()
        return await closing

    assert asyncio.run(stopped())
    assert sizes == [1, 2]
    assert done == [("r", 2)]
