"""The few greatest of many, in constant memory; of equals the earlier."""

from __future__ import annotations

import heapq

from agentrund.model.event import Json


class Top:
    """Keeps the ``size`` greatest that were offered."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._offered = 0
        self._heap: list[tuple[float, int, Json]] = []

    def offer(self, value: float, item: Json) -> None:
        """Consider ``item``, which ranks by ``value``."""
        self._offered += 1
        entry = (value, -self._offered, item)
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, entry)
        elif entry > self._heap[0]:
            heapq.heapreplace(self._heap, entry)

    def items(self) -> list[Json]:
        """Greatest first."""
        return [item for _, _, item in sorted(self._heap, key=lambda entry: (-entry[0], -entry[1]))]
