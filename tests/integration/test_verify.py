"""verify beside a collector at work: what is only on its way is no damage."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agentrund.views.folder import Root
from agentrund.views.verify import verify
from support.daemon import Daemon
from support.raw_client import RawClient
from support.waiting import until


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path) as running:
        yield running


def log(n: int, text: str = "x"):
    return {"n": n, "type": "log", "payload": {"level": "info", "message": text}}


def found(root: Path) -> list[str]:
    return [f"{Path(f.path).relative_to(root)}:{f.offset}: {f.message}" for f in verify(Root(root))]


def live(daemon: Daemon, number: int) -> None:
    """Runs that begin, spill, end, get a late event and are resumed, one after another."""
    for turn in range(12):
        with RawClient(daemon.socket) as client:
            client.hello(f"c{number}-{turn}", session_id=f"s{number}-{turn // 3}")
            client.send(*[log(n, "y" * (100 if n % 5 else 9000)) for n in range(1, 20)])
            client.send({"n": 20, "type": "run.end", "status": "ok"}, log(21, "late"))
            client.acked(21)


def test_nothing_is_found_in_runs_that_are_being_written(daemon):
    threads = [threading.Thread(target=live, args=(daemon, n)) for n in range(3)]
    for thread in threads:
        thread.start()
    looks = []
    while any(thread.is_alive() for thread in threads):
        looks.append(found(daemon.root))
    assert looks == [[]] * len(looks)
    until(lambda: all(row["status"] == "ok" for row in daemon.rows()), "the end of all")
    daemon.stop()
    assert found(daemon.root) == []
    assert len(daemon.run_ids()) == 12
