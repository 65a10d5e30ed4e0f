"""How many bytes of senders' data may be in memory at once, and who may take in the next large piece.

Two ways to hold bytes: ``count`` for what is there already (the begun lines of the socket, request
bodies that wait for their turn), and a ``Claim`` for the most that a read may bring, asked for before
it. Claims are granted in the order they were asked for, and one is always granted: whoever reads
comes to an end, so nobody waits for ever. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Claim:
    """Room for ``size`` bytes, once ``granted``. ``close`` gives it back, or withdraws it."""

    __slots__ = ("_budget", "_on_grant", "granted", "size")

    def __init__(self, budget: Budget, size: int, on_grant: Callable[[], None]) -> None:
        self._budget: Budget | None = budget
        self._on_grant = on_grant
        self.size = size
        self.granted = False

    def grant(self) -> None:
        """The budget has room now."""
        self.granted = True
        self._on_grant()

    def close(self) -> None:
        """Give the room back; a second time does nothing."""
        budget, self._budget = self._budget, None
        if budget is not None:
            budget.give_up(self)


class Budget:
    """``limit`` bytes in all. ``tight`` is set from outside while the process as a whole has too many."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._tight = False
        self._granted = 0
        self._waiting: deque[Claim] = deque()

    @property
    def waiting(self) -> int:
        """Claims that are not granted yet."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether what has no claim should ask for one before it grows."""
        return self._tight or self.used >= self.limit

    @property
    def tight(self) -> bool:
        """Whether one claim at a time is all there is room for."""
        return self._tight

    @tight.setter
    def tight(self, tight: bool) -> None:
        self._tight = tight
        self._serve()

    def count(self, change: int) -> None:
        """Bytes that are held without a claim have grown, or shrunk (negative)."""
        self.used += change
        if change < 0:
            self._serve()

    def claim(self, size: int, on_grant: Callable[[], None]) -> Claim:
        """Ask for room. ``on_grant`` is called when it is granted, which may be before this returns."""
        claim = Claim(self, size, on_grant)
        self._waiting.append(claim)
        self._serve()
        return claim

    def give_up(self, claim: Claim) -> None:
        """A claim is closed."""
        if claim.granted:
            self._granted -= 1
            self.used -= claim.size
        else:
            self._waiting.remove(claim)
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._fits(self._waiting[0].size):
            claim = self._waiting.popleft()
            self._granted += 1
            self.used += claim.size
            claim.grant()

    def _fits(self, size: int) -> bool:
        if self._granted == 0:
            return True
        return not self._tight and self.used + size <= self.limit
