"""What stands behind an OTLP door in its unit tests."""

from __future__ import annotations

import asyncio

from agentrund.model.otlp import Encoding, Peer, Signal
from agentrund.receivers.budget import Budget, Claim
from agentrund.receivers.sink import Receipt, Taken


class Sink:
    """Keeps what it is given; ``verdict`` is raised instead where set."""

    def __init__(self) -> None:
        self.taken: list[tuple[Signal, Encoding, bytes, Peer]] = []
        self.verdict: Exception | None = None
        self.receipt = Receipt(Taken.STORED)
        self.gate: asyncio.Event | None = None
        self.begun = asyncio.Event()
        self.budget = Budget(1 << 30)
        self.senders: list[str] = []
        self.rejected: list[str] = []
        self.makes_room = False
        self.room = asyncio.Event()
        self.room.set()

    def note_size(self, sender: str, size: int, claim: Claim) -> None:
        self.senders.append(sender)

    async def admit(self, remaining_s: float | None, sender: str) -> Claim:
        await self.room.wait()
        return self.budget.claim(1, lambda: None)

    def cut(self) -> bool:
        return self.makes_room

    def note_rejected(self, reason: str, peer: Peer) -> None:
        self.rejected.append(reason)

    async def take(self, signal: Signal, encoding: Encoding, body: bytes, peer: Peer) -> Receipt:
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.verdict is not None:
            raise self.verdict
        self.taken.append((signal, encoding, body, peer))
        return self.receipt
