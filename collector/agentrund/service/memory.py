"""The process's memory against ``max_memory``: the backstop behind the budget's exact count.

The budget bounds what senders can make us hold; what Python and the allocator make of it only the
kernel knows. Near the limit senders are let in one at a time, what is held back is written, and what
the allocator keeps for later is given back.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from agentrund.model.event import Json
from agentrund.receivers.budget import Budget

log: Final = logging.getLogger(__name__)

TIGHT: Final = 0.8
"""Of the limit: what one request or line more may still take lies above."""
TRIM_BYTES: Final = 4 << 20
"""Growth since the last time that makes giving back worth its milliseconds."""
TRIM_EVERY_S: Final = 20.0
TRIM_SHARE: Final = 1 / 300
"""Of our time, unless memory is short: nobody else is served meanwhile. It takes 30 ms with nothing held,
and half a second where OTLP comes as fast as it is taken."""
_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 1 << 20
_STATM: Final = Path("/proc/self/statm")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """Bytes of memory this process has; 0 where the system does not tell."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE
    except OSError:
        return 0


def give_back() -> float:
    """Free what only cycles hold, and let the C library return memory to the kernel, where it can.

    Python looks for cycles by how much is allocated (``daemon.GC_THRESHOLDS``): what was held long enough to
    grow old, an ended run's tree for one, would not be looked at again for hours. Returns seconds taken.
    """
    begun = time.monotonic()
    gc.collect()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
    return time.monotonic() - begun


def keep_no_large_blocks() -> None:
    """Have the C library take large blocks from the kernel and return them there, whatever came before.

    Left to itself it learns from every large block that is freed to keep the next one, up to 32 MiB.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)


class Memory:
    """Looked at four times a second. ``shed`` is called while there is too little room."""

    def __init__(
        self,
        limit: int,
        budget: Budget,
        shed: Callable[[], None],
        measure: Callable[[], int] = resident,
        trim: Callable[[], float] = give_back,
    ) -> None:
        self._limit = limit
        self._budget = budget
        self._shed = shed
        self._measure = measure
        self._trim = trim
        self._trimmed_at = 0.0
        self._trim_took = 0.0
        self._low = measure()
        self._short = 0

    def tick(self, now: float) -> None:
        """Compare, and act; ``now`` is monotonic."""
        used = self._measure()
        tight = used > self._limit * TIGHT
        if tight and not self._budget.tight:
            self._short += 1
            log.warning("memory is short: %d of %d MiB; senders wait", used >> 20, self._limit >> 20)
        self._budget.tight = tight
        if tight:
            self._shed()
        self._low = min(self._low, used)
        wait = TRIM_EVERY_S if tight else max(TRIM_EVERY_S, self._trim_took / TRIM_SHARE)
        if used > self._low + TRIM_BYTES and now >= self._trimmed_at + wait:
            self._trim_took = self._trim()
            self._trimmed_at, self._low = now, self._measure()

    def status(self) -> Json:
        """What ``status`` shows."""
        return {
            "used_bytes": self._measure(),
            "max_bytes": self._limit,
            "held_bytes": self._budget.used,
            "waiting": self._budget.waiting,
            "times_short": self._short,
        }
