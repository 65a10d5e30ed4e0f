"""A start with a history: what is done before the doors open goes with what was open, not with what is old."""

from __future__ import annotations

import asyncio

import pytest

from support.daemon import Daemon
from support.inner_collector import Inner
from support.old_runs import write_old_runs
from support.processes import Agent
from support.raw_client import RawClient
from support.waiting import until

OLD = 300

WATCHER = """
import os, sys
told = os.open(os.environ["OPENED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def hook(event, args):
    if event in ("open", "os.scandir", "os.listdir"):
        name = os.readlink(f"/proc/self/fd/{args[0]}") if isinstance(args[0], int) else args[0]
        os.write(told, f"{event} {name}\\n".encode())
sys.addaudithook(hook)
"""
"""Writes down what is opened and listed, by the names it is opened by."""


@pytest.fixture
def watched(tmp_path):
    """Environment of a collector that tells what it opens, and where."""
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(WATCHER)
    return {"PYTHONPATH": str(tmp_path / "hook"), "OPENED": str(tmp_path / "opened")}


def before_the_doors(opened: str) -> list[str]:
    """What was opened before the discovery file, the last thing but the greeting."""
    lines = opened.split("\n")
    return lines[: next(i for i, line in enumerate(lines) if "agentrund.json" in line)]


def test_no_old_run_is_opened_or_listed_before_the_doors_are(tmp_path, watched):
    old = set(write_old_runs(tmp_path / "root", OLD))
    with Daemon(tmp_path, env=watched) as daemon:
        with RawClient(daemon.socket) as client:
            run_id = client.hello("a", session_id="s")["run_id"]
            client.send({"n": 1, "type": "log"})
            client.acked(1)
            daemon.kill()
        (tmp_path / "opened").unlink()
        daemon.start()
        lines = before_the_doors((tmp_path / "opened").read_text())
        seen = {line.split(" ", 1)[1] for line in lines}
        assert run_id in seen
        assert not seen & old
        assert not [line for line in lines if line.startswith("os.") and line.endswith("/root/runs")]


def test_everything_old_is_looked_at_in_the_end(tmp_path):
    """Rows that are lost, and files that lag, in the midst of a history."""
    old = write_old_runs(tmp_path / "root", 40)
    index = tmp_path / "root" / "index.jsonl"
    rows = index.read_bytes().splitlines(keepends=True)
    rows[7] = b"\x00" * 40 + b"\n"
    del rows[20]
    index.write_bytes(b"".join(rows))
    stale = tmp_path / "root" / "runs" / old[30]
    wanted = (stale / "analytics.json").read_bytes()
    (stale / "analytics.json").unlink()
    with Daemon(tmp_path) as daemon:
        until((stale / "analytics.json").exists, "the file that was missing")
        assert (stale / "analytics.json").read_bytes() == wanted
        assert [row["run_id"] for row in daemon.rows()] == old
        until(lambda: daemon.cli("verify").returncode == 0, "a root without findings")


def test_a_run_that_was_open_is_found_without_its_row(tmp_path):
    write_old_runs(tmp_path / "root", 20)
    with (
        Daemon(tmp_path) as daemon,
        Agent(
            daemon.socket,
            "client.hello('b', session_id='open'); client.send({'n': 1, 'type': 'log'}); client.acked(1); ready()",
        ) as agent,
    ):
        agent.wait_ready()
        daemon.kill()
        index = daemon.root / "index.jsonl"
        index.write_bytes(b"".join(index.read_bytes().splitlines(keepends=True)[:20]))
        daemon.start()
        agent.kill()
        until(lambda: [r for r in daemon.rows() if r["status"] == "crashed"], "the crash")
        assert len(daemon.rows()) == 21


# -- long traces ----------------------------------------------------------------------------------

LONG = 6000
"""Events of a trace that is too long to be replayed in one go."""


def long_run(daemon: Daemon, *, end: bool) -> str:
    """A run of many events; returns its id."""
    with RawClient(daemon.socket) as client:
        run_id = client.hello("long", session_id="long")["run_id"]
        client.send(*({"n": n, "type": "log", "payload": {"message": "x" * 900}} for n in range(1, LONG + 1)))
        client.acked(LONG)
        if end:
            client.send({"n": LONG + 1, "type": "run.end", "status": "ok"})
            client.acked(LONG + 1)
    return run_id


def test_a_long_run_that_was_open_comes_back_after_the_doors_have_opened(tmp_path):
    with Daemon(tmp_path) as daemon:
        run_id = long_run(daemon, end=False)
        daemon.kill()
        (daemon.root / "sessions" / "long").unlink()
        daemon.start()
        with RawClient(daemon.socket) as client:
            client.send({"op": "hello", "v": 1, "source": "long"})
            welcome = client.expect("welcome")
            assert (welcome["run_id"], welcome["acked"], welcome["attempt"]) == (run_id, LONG, 1)
            client.send({"n": LONG + 1, "type": "run.end", "status": "ok"})
            client.acked(LONG + 1)
        until(lambda: daemon.rows()[0]["status"] == "ok", "the end")
        assert [r["seq"] for r in daemon.trace(run_id)] == list(range(1, LONG + 3))
        assert daemon.cli("verify").returncode == 0


def test_others_go_on_while_a_long_run_is_read_back(tmp_path):
    """One connection resumes it, another is answered meanwhile: both stories are in order."""

    async def story(inner):
        actor = inner.enter("long", "s")
        for n in range(1, 400):
            inner.say(actor, "long", n, text="x" * 2000)
        inner.say(actor, "long", 400, "run.end")
        await inner.settle(actor)
        run_id = actor.run_id
        await inner.restart()
        turns = 0
        with pytest.raises(Exception, match="is being read back"):
            inner.enter("next", "s")
        while run_id in inner.runs.loading:
            other = inner.enter(f"other-{turns}")
            inner.say(other, f"other-{turns}", 1)
            turns += 1
            await asyncio.sleep(0)
        again = inner.enter("next", "s")
        assert (again.run_id, again.state.attempt.n, turns > 3) == (run_id, 2, True)
        assert inner.runs.trouble.status() == {"since": None, "refusals": 0}, "no fault of the storage's"
        await inner.close()

    asyncio.run(story(Inner(tmp_path / "root")))


def test_a_damaged_long_run_gives_way_to_a_new_one(tmp_path):
    with Daemon(tmp_path) as daemon:
        run_id = long_run(daemon, end=True)
        until(lambda: daemon.rows()[0]["status"] == "ok", "the end")
        daemon.kill()
        trace = daemon.run_dir(run_id) / "trace.jsonl"
        data = trace.read_bytes()
        trace.write_bytes(data[: len(data) // 2] + b"\x00" * 50 + data[len(data) // 2 + 50 :])
        daemon.start()
        with RawClient(daemon.socket) as client:
            client.send({"op": "hello", "v": 1, "source": "next", "session_id": "long"})
            assert client.expect("welcome")["run_id"] != run_id
