"""The lines that are not settled yet: waiting to be sent, or sent and not acked. Bounded; knows no socket.

When a bound is reached the **newest** event is dropped: the lines before it are a prefix without a hole,
which is what resending and the collector's de-duplication by `n` need, and they hold the openers that
explain the rest. Dropped numbers are gathered in one `lost` entry at the end of the line, sent before
whatever follows it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from agentrund_client._discover import limit
from agentrund_client._wire import lost_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

# Some 200,000 ordinary events: a burst of seconds. Used only while the collector lags behind.
BUFFER_BYTES = 64 << 20
BUFFER_EVENTS = 200_000

# An entry is (n, line, kind): kind is EVENT, CONTROL, or the first number of a lost range (n is its last).
Entry = tuple[int, bytes, int]
EVENT = 0
CONTROL = -1


class Buffer:
    """Two queues of entries in order of `n`: in flight (sent on this connection), then pending (not sent)."""

    def __init__(self, max_bytes: int, max_events: int) -> None:
        self.max_bytes = max_bytes
        self.max_events = max_events
        self.dropped = 0
        self._in_flight: deque[Entry] = deque()
        self._pending: deque[Entry] = deque()
        self._bytes = 0
        self._half_bytes, self._half_events = max_bytes // 2, max_events // 2

    @classmethod
    def with_limits(cls) -> Self:
        """A buffer with the bounds that the environment sets."""
        return cls(
            limit("AGENTRUND_BUFFER_MAX_BYTES", BUFFER_BYTES),
            limit("AGENTRUND_BUFFER_MAX_EVENTS", BUFFER_EVENTS),
        )

    def __len__(self) -> int:
        return len(self._in_flight) + len(self._pending)

    @property
    def pending(self) -> int:
        """How many entries wait to be sent."""
        return len(self._pending)

    @property
    def half_full(self) -> bool:
        """Time to read acks, or the bound will be reached."""
        return self._bytes > self._half_bytes or len(self) > self._half_events

    def admits(self, line: bytes) -> bool:
        """Is there room? One line alone is always admitted, however long."""
        total = len(self._in_flight) + len(self._pending)
        return not total or (self._bytes + len(line) <= self.max_bytes and total < self.max_events)

    def drop(self, n: int) -> None:
        """Count event `n` as lost, in the lost entry at the end of the pending queue."""
        self.dropped += 1
        first = n
        if self._pending and self._pending[-1][2] > EVENT:
            first = self._pop_last()[2]
        self.wait(n, lost_line(first, n), first)

    def wait(self, n: int, line: bytes, kind: int = EVENT) -> None:
        """Append to the pending queue."""
        self._pending.append((n, line, kind))
        self._bytes += len(line)

    def sent(self, n: int, line: bytes) -> bool:
        """Append an event straight to the in-flight queue, while nothing is pending; True when half full."""
        self._in_flight.append((n, line, EVENT))
        self._bytes += len(line)
        return self._bytes > self._half_bytes or len(self._in_flight) > self._half_events

    def next(self) -> Entry | None:
        """The entry to send next, None where there is none.

        A lost entry at the very end stays back while older lines are in flight: it may have to grow, and
        every growth after it was sent would be a frame of its own.
        """
        try:
            entry = self._pending[0]
        except IndexError:  # the loop looks here without the lock, to see whether it has to come in
            return None
        return None if entry[2] > EVENT and len(self._pending) == 1 and self._in_flight else entry

    def start(self) -> None:
        """The entry `next` gave was sent: in flight now, unless it is a control frame, which nobody acks."""
        entry = self._pending.popleft()
        if entry[2] == CONTROL:
            self._bytes -= len(entry[1])
        else:
            self._in_flight.append(entry)

    def give_up(self) -> None:
        """The entry `next` gave can never be sent (too long for the collector): it becomes a lost entry."""
        n, line, _ = self._pending.popleft()
        self._bytes -= len(line)
        self.dropped += 1
        replacement = lost_line(n, n)
        self._bytes += len(replacement)
        self._pending.appendleft((n, replacement, n))

    def ack(self, n: int, at_most: int) -> bool:
        """Forget entries up to number `n`, at most so many at once; True when there may be more to forget."""
        for _ in range(at_most):
            queue = self._in_flight or self._pending
            if not queue or queue[0][0] > n or (queue is self._pending and queue[0][2] == CONTROL):
                return False
            self._bytes -= len(queue.popleft()[1])
        return True

    def requeue(self) -> None:
        """The connection is gone: what was in flight waits again, before what waited already."""
        self._pending.extendleft(reversed(self._in_flight))
        self._in_flight.clear()
        self.drop_control()

    def drop_control(self) -> None:
        """Forget control frames: they belong to one connection."""
        kept = [entry for entry in self._pending if entry[2] != CONTROL]
        self._pending = deque(kept)
        self._bytes = sum(len(entry[1]) for entry in self._in_flight) + sum(len(entry[1]) for entry in kept)

    def take(self) -> Iterator[Entry]:
        """Move every event and lost entry out, oldest first (into the spool)."""
        self.requeue()
        while self._pending:
            entry = self._pending.popleft()
            self._bytes -= len(entry[1])
            yield entry

    def _pop_last(self) -> Entry:
        entry = self._pending.pop()
        self._bytes -= len(entry[1])
        return entry
