"""Names that turn into links, FIFOs and folders and back while a collector works below them."""

from __future__ import annotations

import itertools
import json
import threading

import pytest

from support.daemon import Daemon
from support.planting import PLANTS, Outside, swap
from support.raw_client import RawClient
from support.waiting import until

SWAPS = 1000
EVENTS = 300
OF_THE_ROOT = ["index.jsonl", ".index.jsonl.new", "latest", ".latest.new", "sessions", "sessions/t7", "runs",
               ".agentrund/quarantine", ".agentrund/intake", "NAVIGATE.md"]  # fmt: skip
OF_THE_VICTIM = ["trace.jsonl", "agent.logs", "meta.json", ".meta.json.new", "outline.md", "blobs", ""]


@pytest.fixture
def outside(tmp_path):
    found = Outside(tmp_path)
    yield found
    assert found.untouched()


def log(n: int) -> dict:
    return {"n": n, "type": "log", "payload": {"message": "x", "text": f"{n} " * 3000}}


def short_run(daemon: Daemon, number: int) -> None:
    """Where its folder cannot be made at this moment it is told so, and tries again."""
    with RawClient(daemon.socket) as client:
        until(lambda: client.hello(f"s{number}", session_id=f"t{number}")["op"] == "welcome", "a place")
        client.send(log(1), {"n": 2, "type": "run.end", "status": "ok"})
        client.acked(2)


def test_a_thousand_names_swapped_under_load(tmp_path, outside):
    with (
        Daemon(tmp_path) as daemon,
        RawClient(daemon.socket) as victim,
        RawClient(daemon.socket) as neighbour,
    ):
        doomed = daemon.root / "runs" / victim.hello("victim", session_id="victim")["run_id"]
        theirs = neighbour.hello("neighbour", session_id="neighbour")["run_id"]
        places = [daemon.root / name for name in OF_THE_ROOT] + [doomed / name for name in OF_THE_VICTIM]
        done = threading.Event()
        swaps = []

        def keep_swapping() -> None:
            for path, what in itertools.cycle(itertools.product(places, PLANTS)):
                swap(path, what, outside)
                swaps.append(path)
                if done.is_set() and len(swaps) >= SWAPS:
                    return

        planter = threading.Thread(target=keep_swapping)
        planter.start()
        try:
            for n in range(1, EVENTS + 1):
                victim.send(log(n))
                neighbour.send(log(n))
                if n % 20 == 0:
                    short_run(daemon, n)
            neighbour.acked(EVENTS)
        finally:
            done.set()
            planter.join()
        assert json.loads(daemon.cli("status", "--json").stdout)["pid"] == daemon.process.pid
        assert daemon.stop() == 0
        stored = [r["src"]["n"] for r in daemon.trace(theirs) if r.get("src")]
    assert stored == list(range(1, EVENTS + 1))
    said = daemon.stderr.read_text()
    assert "Traceback" not in said
    assert len(said) < 64 << 10
