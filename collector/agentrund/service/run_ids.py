"""The ids of new runs: by our own clock, whatever the senders say of theirs, and in the order of creation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agentrund.model.ids import created_at, run_id_at
from agentrund.service.clock import Clock

_BASES: Final = 0x8000
"""Ids of one second start at a random number below this, and count up from there."""


class RunIds:
    """Hands out ids; also after a restart within a second, or a clock set back, each sorts after the last."""

    def __init__(self, clock: Clock, randbelow: Callable[[int], int]) -> None:
        self._clock = clock
        self._randbelow = randbelow
        self._last = (0, 0)

    def come_after(self, run_id: str) -> None:
        """There is a run of that id."""
        self._last = max(self._last, created_at(run_id))

    def next(self) -> str:
        """An id that sorts after every other."""
        last_second, last_number = self._last
        second = max(int(self._clock.now()), last_second)
        number = last_number + 1 if second == last_second else self._randbelow(_BASES)
        self._last = second, number
        return run_id_at(second, number)
