"""Threads of the agent that asked to wait: for an ack, or for the answer to a flush."""

from __future__ import annotations

import threading


class Waiter:
    """One waiting thread; `ok` says whether what it waited for happened."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.ok = False
        self.event = threading.Event()

    def settle(self, *, ok: bool) -> None:
        """Let the thread go on."""
        self.ok = ok
        self.event.set()


class Waiters:
    """All waiting threads of one link; the link's lock covers it."""

    def __init__(self) -> None:
        self._for_ack: list[Waiter] = []
        self._for_flush: dict[int, Waiter] = {}
        self._last_id = 0

    def __bool__(self) -> bool:
        return bool(self._for_ack or self._for_flush)

    @property
    def flush_ids(self) -> list[int]:
        """The flushes that have no answer yet."""
        return list(self._for_flush)

    def add_ack(self, waiter: Waiter) -> None:
        """Settle this one when everything up to its `n` is acked."""
        self._for_ack.append(waiter)

    def add_flush(self, waiter: Waiter) -> int:
        """Settle this one when its flush is answered; returns the flush's id."""
        self._last_id += 1
        self._for_flush[self._last_id] = waiter
        return self._last_id

    def forget(self, waiter: Waiter) -> None:
        """Drop one that has stopped waiting."""
        self._for_ack = [other for other in self._for_ack if other is not waiter]
        self._for_flush = {key: other for key, other in self._for_flush.items() if other is not waiter}

    def acked(self, n: int) -> None:
        """Everything up to `n` is acked."""
        for waiter in [waiter for waiter in self._for_ack if waiter.n <= n]:
            waiter.settle(ok=True)
            self._for_ack.remove(waiter)

    def flushed(self, flush_id: object) -> None:
        """The collector answered this flush."""
        waiter = self._for_flush.pop(flush_id, None) if isinstance(flush_id, int) else None
        if waiter is not None:
            waiter.settle(ok=True)

    def fail_acks(self) -> None:
        """The collector is gone: an exit does not wait for it to come back, a flush does."""
        for waiter in self._for_ack:
            waiter.settle(ok=False)
        self._for_ack.clear()

    def fail(self) -> None:
        """Nobody will answer."""
        self.fail_acks()
        for waiter in self._for_flush.values():
            waiter.settle(ok=False)
        self._for_flush.clear()
