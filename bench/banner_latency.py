"""From SIGKILL to the banner on disk, many thin clients at once; and whether a returned call was lost."""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.server import Server

CLIENTS = 200
PACE_S = 0.2
KILL_S = 0.02
"""Five events a second each: a busy agent; the collector must not be what saturates the machine."""

NURSERY = """
import os, sys, time
import agentrund_client as agentrund
base, count, pace = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
for number in range(count):
    if os.fork() == 0:
        record = os.open(f"{base}/{number}.record", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with agentrund.run(f"client-{number}"), agentrund.agent("worker"), agentrund.tool("hang"):
            for i in range(1_000_000):
                agentrund.log("work", i=i)
                os.write(record, b"%d\\n" % i)
                if i == 0:
                    os.write(1, b"%d %d\\n" % (number, os.getpid()))
                time.sleep(pace)
for _ in range(count):
    os.wait()
"""


def measure(clients: int = CLIENTS) -> dict[str, float]:
    """Kill every client at a random moment; milliseconds until its transcript ends in the banner."""
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder)) as server:
        env = {**os.environ, "AGENTRUND_SOCKET": str(server.socket), "AGENTRUND_SPOOL": f"{folder}/spool"}
        nursery = subprocess.Popen(
            [sys.executable, "-c", NURSERY, folder, str(clients), str(PACE_S)],
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        pids = dict(map(int, nursery.stdout.readline().split()) for _ in range(clients))
        # Two hundred starts at once are another measurement: wait until every run is there.
        while len((server.root / "index.jsonl").read_text().splitlines()) < clients:
            time.sleep(0.05)
        killed: dict[int, float] = {}
        for number in chance.sample(sorted(pids), clients):
            time.sleep(chance.random() * KILL_S)
            os.kill(pids[number], signal.SIGKILL)
            killed[number] = time.time()
        nursery.wait(60)
        nursery.stdout.close()
        deadline = time.monotonic() + 30
        while (
            '"status":"running"' in (server.root / "index.jsonl").read_text() and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        latencies, lost = [], 0
        for number, at in killed.items():
            run = server.root / "sessions" / f"client-{number}"
            transcript = run / "agent.logs"
            assert "killed by SIGKILL" in transcript.read_text()
            latencies.append((transcript.stat().st_mtime - at) * 1000)
            sent = len(Path(folder, f"{number}.record").read_text().splitlines())
            stored = sum(
                json.loads(line)["type"] == "log" for line in (run / "trace.jsonl").read_bytes().splitlines()
            )
            lost += max(0, sent - stored)
    latencies.sort()
    return {
        "clients": clients,
        "seed": seed,
        "p50_ms": round(statistics.median(latencies), 1),
        "p99_ms": round(latencies[int(len(latencies) * 0.99) - 1], 1),
        "max_ms": round(latencies[-1], 1),
        "lost_events": lost,
    }
