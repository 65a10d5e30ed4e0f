"""What ``sync = "always"`` costs beside ``interval``: the wait for an acknowledgement, events a second."""

from __future__ import annotations

import socket
import statistics
import tempfile
import time
from pathlib import Path

from bench.server import Server
from bench.stream import BATCH, lines, wait_for_ack

ROUNDS = 3
ASKS = 300
"""Events sent one at a time, each after the acknowledgement of the one before."""
EVENTS = 24_000
SIZE = 300


def connect(server: Server, source: str) -> socket.socket:
    """A sender that has been welcomed."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(server.socket))
    sock.sendall(b'{"op":"hello","source":"%b"}\n' % source.encode())
    sock.recv(4096)
    return sock


def ack_ms(server: Server) -> list[float]:
    """How long each of ``ASKS`` acknowledgements took."""
    found = []
    with connect(server, "asker") as sock:
        for n, line in enumerate(lines(SIZE, ASKS), start=1):
            before = time.perf_counter()
            sock.sendall(line + b"\n")
            wait_for_ack(sock, n)
            found.append((time.perf_counter() - before) * 1000)
    return found


def events_a_second(server: Server, senders: int) -> float:
    """Events of all senders together, in batches, from the first to the last acknowledgement."""
    made = lines(SIZE, EVENTS // senders)
    chunks = [b"\n".join(made[at : at + BATCH]) + b"\n" for at in range(0, len(made), BATCH)]
    socks = [connect(server, f"{senders}-{number}") for number in range(senders)]
    before = time.perf_counter()
    for chunk in chunks:
        for sock in socks:
            sock.sendall(chunk)
    for sock in socks:
        wait_for_ack(sock, len(made))
        sock.close()
    return len(made) * senders / (time.perf_counter() - before)


def measure() -> dict[str, float]:
    """Of interleaved rounds: median and 99th percentile of the waits, medians of the rates."""
    waits: dict[str, list[float]] = {"interval": [], "always": []}
    rates: dict[str, list[float]] = {f"{mode}_{n}": [] for mode in waits for n in (1, 8)}
    for _ in range(ROUNDS):
        for mode, found in waits.items():
            with tempfile.TemporaryDirectory() as folder, Server(Path(folder), mode) as server:
                found.extend(ack_ms(server))
                for senders in (1, 8):
                    rates[f"{mode}_{senders}"].append(events_a_second(server, senders))
    return {
        **{f"{mode}_p50_ms": round(statistics.median(found), 2) for mode, found in waits.items()},
        **{
            f"{mode}_p99_ms": round(sorted(found)[len(found) * 99 // 100], 2) for mode, found in waits.items()
        },
        **{f"{name}_per_s": round(statistics.median(found)) for name, found in rates.items()},
    }
