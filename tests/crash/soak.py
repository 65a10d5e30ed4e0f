"""``python -m crash.soak MINUTES``: many senders for long, agents killed every 30 s, the collector watched.

Judged: resident memory (slope in MB per 10 minutes, after the warm-up), descriptors (back where they
were), and at the end the oracle. The collector lives throughout.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from crash.scenario import Load, Scenario
from crash.steps import KillSender
from crash.world import World

SENDERS: Final = Load(stream=5, client=5, logs=5, spans=5, rate=10, largest=100_000)
KILL_EVERY_S: Final = 30.0
LOOK_EVERY_S: Final = 5.0
BY_THE_MINUTE: Final = int(60 / LOOK_EVERY_S)
SLOPE_MB: Final = 1.0
"""Megabytes in ten minutes that are allowed."""
WARM_UP_MIN: Final = 11.0
"""Requests are remembered for ten minutes: as long that memory fills. Of a shorter soak, half."""


@dataclass(slots=True)
class Watch:
    """Readings of the collector's process: minutes, megabytes, descriptors."""

    pid: int
    began: float = field(default_factory=time.monotonic)
    readings: list[tuple[float, float, int]] = field(default_factory=list)

    def look(self) -> None:
        """Take a reading."""
        fields = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines()
            if ":" in line
        )
        rss = int(fields["VmRSS"].split()[0]) / 1024
        fds = len(list(Path(f"/proc/{self.pid}/fd").iterdir()))
        self.readings.append(((time.monotonic() - self.began) / 60, rss, fds))

    def settled(self) -> list[tuple[float, float, int]]:
        """The readings after the warm-up."""
        warm = min(WARM_UP_MIN, self.readings[-1][0] / 2)
        return [reading for reading in self.readings if reading[0] > warm]

    def slope(self) -> float:
        """Megabytes in ten minutes, by least squares."""
        minutes, megabytes, _ = zip(*self.settled(), strict=True)
        return 10 * statistics.linear_regression(minutes, megabytes).slope

    def descriptors(self) -> tuple[int, int]:
        """The least in the first and in the last fifth: what is not given back shows."""
        fds = [fds for _, _, fds in self.settled()]
        part = max(1, len(fds) // 5)
        return min(fds[:part]), min(fds[-part:])


def main() -> int:
    """Soak, print what was seen, end with 3 where it is not as promised."""
    parser = argparse.ArgumentParser(prog="python -m crash.soak", description=__doc__)
    parser.add_argument("minutes", type=float, nargs="?", default=30.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args()
    scenario = Scenario("soak", "", (), load=SENDERS)
    print(f"seed {args.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="crash-") as base,
        World(scenario, random.Random(args.seed), Path(base)) as world,
    ):
        watch = Watch(world.daemon.process.pid)
        end = time.monotonic() + args.minutes * 60
        next_kill = time.monotonic() + KILL_EVERY_S
        while time.monotonic() < end:
            time.sleep(LOOK_EVERY_S)
            watch.look()
            if time.monotonic() > next_kill:
                KillSender()(world)
                next_kill += KILL_EVERY_S
        acked = world.acked()
        violations = world.judge()
        slope, (first, last) = watch.slope(), watch.descriptors()
        _, start_mb, _ = watch.settled()[0]
        _, end_mb, _ = watch.settled()[-1]
        print(f"{args.minutes:.0f} min, {acked} events acknowledged, {world.trials} agents killed")
        print(
            f"memory {start_mb:.1f} MB after the warm-up, {end_mb:.1f} MB at the end: {slope:+.2f} MB in 10 min"
        )
        print(
            "memory by the minute: " + " ".join(f"{mb:.1f}" for _, mb, _ in watch.readings[::BY_THE_MINUTE])
        )
        print(f"descriptors {first} at first, {last} at last (the least of a fifth)")
        print(f"{len(violations)} violations")
        for violation in violations[:20]:
            print(f"    {str(violation)[:1200]}")
        if violations:
            print(f"kept in {world.keep(Path(tempfile.mkdtemp(prefix='crash-kept-')))}")
    return 3 if violations or slope > SLOPE_MB or last > first + 2 else 0


if __name__ == "__main__":
    sys.exit(main())
