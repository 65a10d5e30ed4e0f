"""What an OTLP door needs from whoever takes its requests."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from agentrund.model.otlp import Encoding, Peer, Signal


class Taken(Enum):
    """How a request was taken; to the sender all are success."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    """The same bytes came in the last minutes: a retry after a lost answer."""
    EMPTY = "empty"
    """Nothing in it to store."""


class OtlpSink(Protocol):
    """Where requests go."""

    async def take(self, signal: Signal, encoding: Encoding, body: bytes, peer: Peer) -> Taken:
        """Store a request; returning is the promise that it is in a file.

        The door never cancels it half-way. Raises Rejected (never worth sending again), Overloaded
        or Unavailable (worth sending again).
        """
