"""The Unix-socket door: CPU per stored and acknowledged event, against the floor of the same run.

Floor: split, parse, add two fields, encode, one write per 64 events; no socket, no checks, one file.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import tempfile
import time
from pathlib import Path

import orjson

from bench.server import Server

CONNECTIONS = 16
EVENTS = 48_000
ROUNDS = 5
BATCH = 64


def lines(size: int, count: int) -> list[bytes]:
    """Tool calls and results of about ``size`` bytes."""
    made = []
    for n in range(1, count + 1):
        event = {
            "n": n,
            "type": "tool.call" if n % 2 else "tool.result",
            "name": "run_python",
            "span": str((n + 1) // 2),
            "payload": {},
        }
        event["payload"] = {"args": {"code": "x"}} if n % 2 else {"text": "y", "hits": n}
        room = max(1, size - len(json.dumps(event)))
        event["payload"] = {"args": {"code": "x" * room}} if n % 2 else {"text": "y" * room, "hits": n}
        made.append(orjson.dumps(event))
    return made


def floor_us(made: list[bytes], path: Path) -> float:
    """CPU microseconds per event of the least that could be done."""
    data = b"\n".join(made)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    before = time.process_time()
    out = []
    for seq, line in enumerate(data.split(b"\n")):
        event = orjson.loads(line)
        event["seq"], event["run_id"] = seq, "20260101_000000_0001"
        out.append(orjson.dumps(event))
        if len(out) == BATCH:
            os.write(fd, b"\n".join(out) + b"\n")
            out.clear()
    spent = time.process_time() - before
    os.close(fd)
    return spent / len(made) * 1e6


def server_us(made: list[bytes]) -> float:
    """CPU microseconds per event of the whole collector, everything on, to the last acknowledgement."""
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder)) as server:
        clients = []
        for number in range(CONNECTIONS):
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(str(server.socket))
            sock.sendall(b'{"op":"hello","source":"bench-%d"}\n' % number)
            sock.recv(4096)
            clients.append(sock)
        before = server.cpu_s()
        chunks = [b"\n".join(made[at : at + BATCH]) + b"\n" for at in range(0, len(made), BATCH)]
        for chunk in chunks:
            for sock in clients:
                sock.sendall(chunk)
        for sock in clients:
            wait_for_ack(sock, len(made))
            sock.close()
        return (server.cpu_s() - before) / (len(made) * CONNECTIONS) * 1e6


def wait_for_ack(sock: socket.socket, n: int) -> None:
    """Read until everything is acknowledged."""
    seen = b""
    while b'"n":%d,' % n not in seen:
        seen = seen[-200:] + sock.recv(1 << 16)


def measure(size: int) -> dict[str, float]:
    """Medians of interleaved rounds."""
    made = lines(size, EVENTS // CONNECTIONS)
    floors, servers = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS):
            floors.append(floor_us(made * CONNECTIONS, Path(folder) / str(number)))
            servers.append(server_us(made))
    ratios = [server / floor for server, floor in zip(servers, floors, strict=True)]
    return {
        "floor_us": round(statistics.median(floors), 2),
        "collector_us": round(statistics.median(servers), 2),
        "ratio": round(statistics.median(ratios), 2),
        "ratio_min": round(min(ratios), 2),
        "ratio_max": round(max(ratios), 2),
    }
