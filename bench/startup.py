"""From the start of ``agentrund serve`` to its greeting, after a kill, with old runs in the root."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from tests.support.old_runs import write_old_runs

from bench.server import Server

COUNTS = (0, 1_000, 10_000)
ROUNDS = 5


def measure(counts: tuple[int, ...] = COUNTS) -> dict[str, float]:
    """Medians of interleaved rounds: wall and CPU milliseconds until it says that it records."""
    wall: dict[int, list[float]] = {count: [] for count in counts}
    cpu: dict[int, list[float]] = {count: [] for count in counts}
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            write_old_runs(Path(folder) / str(count) / "root", count)
        for number in range(ROUNDS + 1):
            for count in counts:
                before = time.monotonic()
                server = Server(Path(folder) / str(count))
                took, spent = time.monotonic() - before, server.cpu_s()
                server.kill()
                if number:  # the first start finds nothing that was killed
                    wall[count].append(took * 1000)
                    cpu[count].append(spent * 1000)
    return {
        **{f"{count}_ms": round(statistics.median(wall[count])) for count in counts},
        **{f"{count}_cpu_ms": round(statistics.median(cpu[count])) for count in counts},
    }


if __name__ == "__main__":
    print(measure((*COUNTS, 100_000)))
