"""Who may send an OTLP request next: it waits outside, unread, until there is room for all it may be.

A request that is not read yet costs next to nothing: its sender's window is closed after some ten
kilobytes. So waiting is the answer to a burst. A refusal, which some exporters answer by throwing the
batch away, is left for when waiting would outlast the sender's own patience.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from agentrund.model.errors import Overloaded
from agentrund.receivers.budget import Budget, Claim

RETRY_S: Final = 5.0
PATIENCE_S: Final = 30.0
"""How long a request waits whose sender names no deadline."""
PATIENCE: Final = 0.7
"""Of what a sender waits in all: an answer within it may be sent again, what times out is dropped."""
WAITING_MAX: Final = 4096
"""Requests that wait at once: some ten kilobytes each."""


SMALL: Final = 1 << 20
"""Room that is asked for at least."""
GROWTH: Final = 4
"""Times its largest request is what is asked for the next one of a sender."""
SENDERS: Final = 1024
"""Connections whose largest request is remembered."""

_Turn = tuple[asyncio.Future[Claim], int]


class _Lane:
    """Requests that wait, and the claim for the one whose turn is next."""

    def __init__(self, budget: Budget, *, newest_first: bool) -> None:
        self._budget = budget
        self._newest_first = newest_first
        self._next: Claim | None = None
        self.queue: deque[_Turn] = deque()

    def pump(self, has_room: Callable[[], bool]) -> None:
        """Let in who can be let in."""
        while self.queue and has_room():
            if self._next is None:
                size = self.queue[self._first][1]
                self._next = self._budget.claim(size, lambda: self._granted(has_room))
            if not self._next.granted:
                return
            claim, self._next = self._next, None
            turn, _ = self.queue[self._first]
            del self.queue[self._first]
            turn.set_result(claim)
        self.take_back()

    def add(self, place: _Turn) -> None:
        """One more waits. Where the newest is first, what was claimed for another is its now."""
        self.queue.append(place)
        if self._newest_first and self._next is not None and self._next.size != place[1]:
            self.take_back()

    def take_back(self) -> None:
        """Nothing is claimed any more."""
        claim, self._next = self._next, None
        if claim is not None:
            claim.close()

    @property
    def _first(self) -> int:
        return -1 if self._newest_first else 0

    def _granted(self, has_room: Callable[[], bool]) -> None:
        if self._next is not None:  # else ``pump`` itself looks at it
            self.pump(has_room)


class Admission:
    """Lets requests in one after the other, as far as ``budget`` and ``has_room`` (of what follows) allow."""

    def __init__(self, budget: Budget, size: int, has_room: Callable[[], bool]) -> None:
        """``size`` is the room for the largest request: what is asked for a sender's first one."""
        self._budget = budget
        self._size = size
        self._has_room = has_room
        self._small = _Lane(budget, newest_first=False)
        # Those of whom nothing is known, or that they send much. Who has waited here for long may be one of
        # hundreds that begin a request and never end it: none of them must hold up who has just come.
        self._others = _Lane(budget, newest_first=True)
        self._largest: OrderedDict[str, int] = OrderedDict()
        self.refused = 0

    @property
    def waiting(self) -> int:
        """Requests that wait to be read."""
        return len(self._small.queue) + len(self._others.queue)

    def note(self, sender: str, size: int, claim: Claim) -> None:
        """A request of ``size`` bytes has come from a connection: those that follow will be like it.

        ``claim`` was for the most it could be. How long it takes to store it must hold up nobody else.
        """
        self._largest[sender] = max(self._largest.get(sender, 0), size)
        self._largest.move_to_end(sender)
        if len(self._largest) > SENDERS:
            self._largest.popitem(last=False)
        claim.shrink(self._room_for(size))

    def _room(self, sender: str) -> int:
        largest = self._largest.get(sender)
        return self._size if largest is None else self._room_for(largest)

    def _room_for(self, size: int) -> int:
        return min(self._size, max(SMALL, GROWTH * size))

    async def enter(self, remaining_s: float | None, sender: str) -> Claim:
        """Room for one request; the caller closes the claim. ``remaining_s``: until its sender gives up.

        Raises Overloaded where there is none in time.
        """
        if self.waiting >= WAITING_MAX:
            raise self._overloaded()
        patience = PATIENCE_S if remaining_s is None else min(PATIENCE_S, remaining_s * PATIENCE)
        turn: asyncio.Future[Claim] = asyncio.get_running_loop().create_future()
        place = (turn, self._room(sender))
        lane = self._small if self._budget.is_small(place[1]) else self._others
        lane.add(place)
        lane.pump(self._has_room)
        try:
            if not turn.done():
                await asyncio.wait((turn,), timeout=patience)
        except asyncio.CancelledError:
            self._leave(lane, place)
            raise
        if not turn.done():
            self._leave(lane, place)
            raise self._overloaded()
        return turn.result()

    def _leave(self, lane: _Lane, place: _Turn) -> None:
        """Somebody waits no more; where its turn has just come, it is the next one's."""
        if place[0].done():
            place[0].result().close()
        else:
            lane.queue.remove(place)
            lane.take_back()  # it may have been asked for the one that has left
        lane.pump(self._has_room)

    def pump(self) -> None:
        """Let in who can be let in; called whenever there may be room."""
        self._small.pump(self._has_room)
        self._others.pump(self._has_room)

    def _overloaded(self) -> Overloaded:
        self.refused += 1
        return Overloaded("the collector is busy; send it again", retry_s=RETRY_S)
