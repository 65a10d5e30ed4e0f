"""Stores that have begun: never cut in half by a sender that goes away, and waited for at a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from agentrund.receivers.sink import Receipt


class Stores:
    """Those of one OTLP door."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Receipt]] = set()

    async def see_through(self, take: Coroutine[Any, Any, Receipt]) -> Receipt:
        """Wait for a store; where the waiting is cancelled, it goes on by itself."""
        task = asyncio.ensure_future(take)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def settled(self) -> None:
        """Every store that has begun has ended."""
        if self._under_way:
            await asyncio.wait(self._under_way)

    def _ended(self, task: asyncio.Task[Receipt]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            # Looked at, so that nothing is said of it where the sender has gone.
            task.exception()
