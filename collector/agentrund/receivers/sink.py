"""What an OTLP door needs from whoever takes its requests."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from agentrund.model.otlp import Encoding, Peer, Signal
from agentrund.receivers.budget import Claim


class Taken(Enum):
    """How a request was taken; to the sender all are success."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    """The same bytes came in the last minutes: a retry after a lost answer."""
    EMPTY = "empty"
    """Nothing in it to store."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """How a request was taken, and how many of its items could not be read; ``why`` is of the first."""

    taken: Taken
    rejected: int = 0
    why: str = ""


class OtlpSink(Protocol):
    """Where requests go."""

    async def admit(self, remaining_s: float | None, sender: str) -> Claim:
        """Room for one request before it is read; the door closes the claim when it is taken or refused.

        ``remaining_s`` is how long its sender still waits, None where it does not say; ``sender`` names
        the connection. Raises Overloaded.
        """

    def note_size(self, sender: str, size: int, claim: Claim) -> None:
        """A request was read, for which there was ``claim``: it need not be larger than that takes."""

    def cut(self) -> bool:
        """Whether a request that does not come to its end has to make room for others."""

    def note_rejected(self, reason: str, peer: Peer) -> None:
        """The door itself rejected a request: it was too large, or none."""

    async def take(self, signal: Signal, encoding: Encoding, body: bytes, peer: Peer) -> Receipt:
        """Store a request; returning is the promise that it is in a file.

        The door never cancels it half-way. Raises Rejected (never worth sending again), Overloaded
        or Unavailable (worth sending again).
        """
