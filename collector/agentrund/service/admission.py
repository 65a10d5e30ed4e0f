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


class Admission:
    """Lets requests in one after the other, as far as ``budget`` and ``has_room`` (of what follows) allow."""

    def __init__(self, budget: Budget, size: int, has_room: Callable[[], bool]) -> None:
        """``size`` is the room for the largest request: what is asked for a sender's first one."""
        self._budget = budget
        self._size = size
        self._has_room = has_room
        self._queue: deque[_Turn] = deque()
        self._largest: OrderedDict[str, int] = OrderedDict()
        self._next: Claim | None = None
        self.refused = 0

    @property
    def waiting(self) -> int:
        """Requests that wait to be read."""
        return len(self._queue)

    def note(self, sender: str, size: int) -> None:
        """A request of ``size`` bytes has come from a connection: those that follow will be like it."""
        self._largest[sender] = max(self._largest.get(sender, 0), size)
        self._largest.move_to_end(sender)
        if len(self._largest) > SENDERS:
            self._largest.popitem(last=False)

    def _room(self, sender: str) -> int:
        largest = self._largest.get(sender)
        return self._size if largest is None else min(self._size, max(SMALL, GROWTH * largest))

    async def enter(self, remaining_s: float | None, sender: str) -> Claim:
        """Room for one request; the caller closes the claim. ``remaining_s``: until its sender gives up.

        Raises Overloaded where there is none in time.
        """
        if len(self._queue) >= WAITING_MAX:
            raise self._overloaded()
        patience = PATIENCE_S if remaining_s is None else min(PATIENCE_S, remaining_s * PATIENCE)
        turn: asyncio.Future[Claim] = asyncio.get_running_loop().create_future()
        place = (turn, self._room(sender))
        self._queue.append(place)
        self.pump()
        try:
            if not turn.done():
                await asyncio.wait((turn,), timeout=patience)
        except asyncio.CancelledError:
            self._leave(place)
            raise
        if not turn.done():
            self._leave(place)
            raise self._overloaded()
        return turn.result()

    def _leave(self, place: _Turn) -> None:
        """Somebody waits no more; where its turn has just come, it is the next one's."""
        if place[0].done():
            place[0].result().close()
        else:
            self._queue.remove(place)
            self._take_back()  # it may have been asked for the one that has left
        self.pump()

    def pump(self) -> None:
        """Let in who can be let in; called whenever there may be room."""
        while self._queue and self._has_room():
            if self._next is None:
                self._next = self._budget.claim(self._queue[0][1], self._granted)
            if not self._next.granted:
                return
            claim, self._next = self._next, None
            self._queue.popleft()[0].set_result(claim)
        self._take_back()

    def _take_back(self) -> None:
        claim, self._next = self._next, None
        if claim is not None:
            claim.close()

    def _granted(self) -> None:
        if self._next is not None:  # else ``pump`` itself looks at it
            self.pump()

    def _overloaded(self) -> Overloaded:
        self.refused += 1
        return Overloaded("the collector is busy; send it again", retry_s=RETRY_S)
