"""How long a line waits for its acknowledgement while OTLP comes as fast as it is taken."""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.server import Server

LINES = 1500
EVERY_S = 0.01
SPANS = {"of 1 span": 1, "of 50 spans": 50, "of 512 spans": 512}


class Sender:
    """A line every hundredth of a second, each waited for."""

    def __init__(self, path: Path) -> None:
        self._peer = socket.socket(socket.AF_UNIX)
        self._peer.connect(str(path))
        self._answers = self._peer.makefile("rb")
        self._peer.sendall(b'{"op":"hello","source":"fair"}\n')
        self._answers.readline()
        self._n = 0

    def waits(self, lines: int) -> list[float]:
        """Seconds from a line to its acknowledgement."""
        taken = []
        for _ in range(lines):
            self._n += 1
            begun = time.perf_counter()
            self._peer.sendall(b'{"n":%d,"type":"log","payload":{"message":"x"}}\n' % self._n)
            self._answers.readline()
            taken.append(time.perf_counter() - begun)
            time.sleep(max(0.0, EVERY_S - taken[-1]))
        return taken

    def close(self) -> None:
        """Hang up."""
        self._answers.close()
        self._peer.close()


def p99_ms(waits: list[float]) -> float:
    """Milliseconds that all but a hundredth stay below."""
    return round(statistics.quantiles(waits, n=100)[98] * 1000, 2)


def measure() -> dict[str, float]:
    """p99 in milliseconds: alone, and beside requests of each size."""
    found: dict[str, float] = {}
    for size, spans in SPANS.items():
        with tempfile.TemporaryDirectory() as folder, Server(Path(folder), otlp="127.0.0.1:0") as server:
            address = json.loads(server.socket.with_suffix(".json").read_text())["otlp_grpc"]
            sender = Sender(server.socket)
            found.setdefault("p99 ms alone", p99_ms(sender.waits(LINES // 3)))
            load = subprocess.Popen([sys.executable, "-m", "bench.otlp_load", address, str(spans)])
            try:
                sender.waits(LINES // 5)  # until it runs
                found[f"p99 ms beside requests {size}"] = p99_ms(sender.waits(LINES))
            finally:
                load.kill()
                load.wait()
            sender.close()
    return found
