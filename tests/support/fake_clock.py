"""A clock that stands still until it is told to go on, in Kathmandu."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from agentrund.service.clock import Clock

KATHMANDU = timezone(timedelta(hours=5, minutes=45))


class FakeClock(Clock):
    """``tick(seconds)`` is the only thing that moves it."""

    def __init__(self, start: datetime) -> None:
        super().__init__()
        self.wall = start.astimezone(UTC).timestamp()

    def tick(self, seconds: float) -> None:
        self.wall = round(self.wall + seconds, 3)

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.wall

    def iso(self, ts: float) -> str:
        return datetime.fromtimestamp(round(ts * 1000) / 1000, KATHMANDU).isoformat(timespec="milliseconds")
