"""How many bytes of senders' data may be in memory at once, and who may take in the next large piece.

Two ways to hold bytes: ``count`` for what is there already (the begun lines of the socket, request
bodies that wait for their turn), and a ``Claim`` for the most that a read may bring, asked for before
it. Claims are granted in the order they were asked for, and one is always granted: whoever reads
comes to an end, so nobody waits for ever. Small claims have a lane of their own beside those who wait for
much room: what dawdles there holds nobody else up. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

SMALL: Final = 1 / 32
"""Of the limit: a claim of that size may pass those who wait,"""
LANE: Final = 1 / 8
"""and so much of the limit, beyond it, is what such claims have together."""


class Claim:
    """Room for ``size`` bytes, once ``granted``. ``close`` gives it back, or withdraws it."""

    __slots__ = ("_budget", "_on_grant", "granted", "passed", "size")

    def __init__(self, budget: Budget, size: int, on_grant: Callable[[], None]) -> None:
        self._budget: Budget | None = budget
        self._on_grant = on_grant
        self.size = size
        self.granted = False
        self.passed = False
        """Granted past others."""

    def grant(self) -> None:
        """The budget has room now."""
        self.granted = True
        self._on_grant()

    def shrink(self, size: int) -> None:
        """Give back what of the room is beyond ``size``, now that it is known what was read."""
        if self._budget is not None and self.granted and size < self.size:
            self._budget.give_back(self, self.size - size)

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
        self._in_lane = 0
        self._waiting: OrderedDict[Claim, None] = OrderedDict()
        self._small: OrderedDict[Claim, None] = OrderedDict()
        """Those of them that may pass."""

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

    def is_small(self, size: int) -> bool:
        """Whether a claim of ``size`` may pass those who wait for more."""
        return size <= self.limit * SMALL

    def count(self, change: int) -> None:
        """Bytes that are held without a claim have grown, or shrunk (negative)."""
        self.used += change
        if change < 0:
            self._serve()

    def claim(self, size: int, on_grant: Callable[[], None]) -> Claim:
        """Ask for room. ``on_grant`` is called when it is granted, which may be before this returns."""
        claim = Claim(self, size, on_grant)
        self._waiting[claim] = None
        if self.is_small(size):
            self._small[claim] = None
        self._serve()
        return claim

    def give_up(self, claim: Claim) -> None:
        """A claim is closed."""
        if claim.granted:
            self._in_lane -= claim.size if claim.passed else 0
            self._granted -= not claim.passed
            self.used -= claim.size
        else:
            self._forget(claim)
        self._serve()

    def give_back(self, claim: Claim, size: int) -> None:
        """A granted claim needs ``size`` bytes less."""
        self._in_lane -= size if claim.passed else 0
        self.used -= size
        claim.size -= size
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._fits(first := next(iter(self._waiting))):
            self._granted += 1
            self._grant(first)
        while self._small and self._may_pass(first := next(iter(self._small))):
            first.passed = True
            self._in_lane += first.size
            self._grant(first)

    def _grant(self, claim: Claim) -> None:
        self._forget(claim)
        self.used += claim.size
        claim.grant()

    def _forget(self, claim: Claim) -> None:
        del self._waiting[claim]
        self._small.pop(claim, None)

    def _fits(self, claim: Claim) -> bool:
        if self._granted == 0:
            return True
        return not self._tight and self.used - self._in_lane + claim.size <= self.limit

    def _may_pass(self, claim: Claim) -> bool:
        return not self._tight and self._in_lane + claim.size <= self.limit * LANE
