"""What a scenario says: who sends, on which disk, under which settings, and what happens meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from crash.world import World


class Step(Protocol):
    """Something that happens; a fault counts itself as a trial."""

    def __call__(self, world: World) -> None: ...


@dataclass(frozen=True, slots=True)
class Load:
    """How many senders of each kind, at how many events a second each (0: as fast as they can)."""

    stream: int = 2
    client: int = 2
    logs: int = 2
    spans: int = 2
    rate: float = 40.0
    largest: int = 1 << 20
    hasty: bool = False
    """They hang up before answers come, and send everything again; each time is a trial."""

    def kinds(self) -> list[str]:
        """One entry a sender."""
        return (
            ["stream"] * self.stream
            + ["client"] * self.client
            + ["otlp-logs"] * self.logs
            + ["otlp-spans"] * self.spans
        )


@dataclass(frozen=True, slots=True)
class Tmpfs:
    """A small file system of its own below the root; needs the right to mount."""

    size: str
    inodes: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One description. ``steps`` are played ``short`` or ``full`` times, each time in a new world."""

    name: str
    about: str
    steps: tuple[Step, ...]
    load: Load = Load()
    settings: Mapping[str, str] = field(default_factory=dict)
    disk: Tmpfs | None = None
    short: int = 1
    full: int = 4
    returned: bool = False
    """The collector lives throughout: what a call of the thin client gave away is stored, without an ack."""
    quiet_log_bytes: int = 0
    """0, or how much the collector may write into its own log."""
