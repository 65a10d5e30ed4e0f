"""What a sender writes down privately: the events it made, and how far they were acknowledged.

One file a producer, appended to with single small writes: ``s <n> <digest>`` before an event is handed
over, ``a <n>`` once everything up to ``n`` is acknowledged, ``x <text>`` for an answer that would have
made a real exporter drop the batch, ``r`` when something is sent again unasked, ``e`` when the sender ended in peace (everything must be stored).
"""

from __future__ import annotations

import hashlib
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

SUFFIX = ".ledger"

_LETTERS = random.Random("letters")
_NOISE = "".join(
    _LETTERS.choice("etaoin shrdlu " * 4 + 'cmfwypvbgkjqxz  ,.:;"{}[]\\/<>#|`\n\té€😀')
    for _ in range(1 << 16)
)


def digest(body: str) -> str:
    """What the ledger keeps of a body."""
    return hashlib.sha256(body.encode()).hexdigest()[:16]


def body(producer: str, n: int, size: int) -> str:
    """The text of an event: always the same for a producer and a number, different for any others."""
    head = f"{producer}:{n}:"
    start = random.Random(head).randrange(len(_NOISE))
    text = _NOISE[start:] + _NOISE * (size // len(_NOISE) + 1)
    return head + text[: max(0, size - len(head))]


class Ledger:
    """The writing side, one a producer."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._acked = 0

    def sent(self, n: int, text: str) -> None:
        """An event is about to be handed over."""
        os.write(self._fd, f"s {n} {digest(text)}\n".encode())

    def acked(self, n: int) -> None:
        """Everything up to ``n`` is acknowledged."""
        if n > self._acked:
            self._acked = n
            os.write(self._fd, f"a {n}\n".encode())

    def refused(self, why: str) -> None:
        """An answer that makes exporters drop what they sent."""
        os.write(self._fd, f"x {why}\n".encode())

    def repeated(self) -> None:
        """What was sent will be sent again: its answer was not waited for."""
        os.write(self._fd, b"r\n")

    def ended(self) -> None:
        """Everything was handed over; nothing of it may be missing."""
        os.write(self._fd, b"e\n")


@dataclass(slots=True)
class Account:
    """A ledger as read: digests by number, the highest acknowledged number, refusals, a peaceful end."""

    producer: str
    sent: dict[int, str] = field(default_factory=dict)
    acked: int = 0
    refused: list[str] = field(default_factory=list)
    ended: bool = False
    repeated: int = 0


def read(path: Path) -> Account:
    """Read a ledger; its writer may have been killed within a line."""
    account = Account(path.name.removesuffix(SUFFIX))
    for line in path.read_text().split("\n")[:-1]:
        kind, _, rest = line.partition(" ")
        if kind == "s":
            n, _, text = rest.partition(" ")
            account.sent[int(n)] = text
        elif kind == "a":
            account.acked = max(account.acked, int(rest))
        elif kind == "x":
            account.refused.append(rest)
        elif kind == "r":
            account.repeated += 1
        elif kind == "e":
            account.ended = True
    return account


def read_all(folder: Path) -> list[Account]:
    """Every ledger of a folder."""
    return [read(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]
