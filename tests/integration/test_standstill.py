"""Processes that stand still: hanging, stopped, asleep. None of them is dead, and it is told."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from support.cgroups import freezable, freeze
from support.daemon import Daemon
from support.namespaces import UNSHARE, need_pid_namespaces
from support.processes import Agent
from support.raw_client import RawClient
from support.waiting import until

HANG = """
client.hello("agent", session_id="s")
client.send({"n": 1, "type": "tool.call", "name": "t", "span": "1"})
client.acked(1)
print("ready", flush=True)
%s
client.send({"n": 2, "type": "run.end", "status": "ok"})
client.acked(2)
"""

HANGS = {
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "holds the interpreter": "import ctypes; ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)",
    "waits for its own lock": "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
}


def open_run(asker: RawClient) -> dict:
    asker.send({"op": "status"})
    answer = asker.expect("status")
    assert answer["quiet_after_s"] == 1
    [run] = answer["open_runs"]
    return run


@pytest.mark.parametrize(
    "how",
    ["stopped", *(pytest.param(how, marks=pytest.mark.slow) for how in HANGS if how != "stopped")],
)
def test_a_run_whose_process_hangs_is_quiet_and_not_dead(tmp_path, how):
    with (
        Daemon(tmp_path, heartbeat_timeout="1s") as daemon,
        RawClient(daemon.socket) as asker,
        Agent(daemon.socket, HANG % HANGS[how]) as agent,
    ):
        agent.wait_ready()
        until(lambda: open_run(asker)["quiet_s"] > 1.5, "a quiet run")
        text = daemon.cli("status").stdout
        assert re.search(r"  attempt 1  at #0002  1 source  session s  quiet \d+ s$", text, re.MULTILINE), (
            text
        )
        assert "quiet after" not in text
        low = daemon.cli("show", "latest", "--detail", "low").stdout
        assert re.search(r"^status +running, last record \d+ s ago$", low, re.MULTILINE), low
        assert [r["type"] for r in daemon.trace()] == ["run.start", "tool.call"]
        if how == "waits for its own lock":
            agent.kill()
        elif how == "stopped":
            agent.process.send_signal(signal.SIGCONT)
        else:
            agent.go_on()
        row = until(lambda: [row for row in daemon.rows() if row["status"] != "running"], "its end")[0]
        assert row["status"] == ("crashed" if how == "waits for its own lock" else "ok")


def test_a_run_that_goes_on_is_quiet_no_more(tmp_path):
    with (
        Daemon(tmp_path, heartbeat_timeout="1s") as daemon,
        RawClient(daemon.socket) as asker,
        RawClient(daemon.socket) as client,
    ):
        client.hello("agent")
        for n, sign_of_life in enumerate([{"n": 1, "type": "log"}, {"op": "heartbeat"}]):
            until(lambda: open_run(asker)["quiet_s"] > 1, "a quiet run")
            client.send(sign_of_life)
            until(lambda: open_run(asker)["quiet_s"] < 1, f"sign of life {n}")
        until(lambda: open_run(asker)["quiet_s"] > 1, "a quiet run")
        daemon.kill()
        daemon.start()
        with RawClient(daemon.socket) as again:
            assert open_run(again)["quiet_s"] > 1, "a restart is no sign of life"


# -- both stand still: a machine that sleeps ------------------------------------------------------

SLEEPER = """
client.close()
os.environ["AGENTRUND_SOCKET"] = sys.argv[1]
import agentrund_client as ar
run = ar.run("s")
ar.log("before")
assert ar.flush(20)
ready()
ar.log("after")
assert ar.flush(20)
run.end("ok")
"""


def collector_pid(daemon: Daemon) -> int:
    """The collector itself, below ``unshare``."""
    pid = daemon.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", "a stop")


@pytest.mark.parametrize("first", ["collector", "agent"])
def test_after_a_sleep_nobody_is_declared_dead(tmp_path, first):
    """Longer asleep than a silence may last, and either of the two wakes up first."""
    need_pid_namespaces()
    with (
        # In a namespace of its own: it has heartbeats and nothing else to go by.
        Daemon(tmp_path, heartbeat_timeout="2s", wrapper=UNSHARE) as daemon,
        Agent(daemon.socket, SLEEPER) as agent,
    ):
        agent.wait_ready()
        assert daemon.trace()[0]["payload"]["pid_from"] == "client"
        collector = collector_pid(daemon)
        stop(agent.process.pid)
        stop(collector)
        asleep = time.monotonic()
        until(lambda: time.monotonic() > asleep + 3, "more than the timeout")
        awake = [collector, agent.process.pid] if first == "collector" else [agent.process.pid, collector]
        os.kill(awake[0], signal.SIGCONT)
        if first == "collector":
            with RawClient(daemon.socket) as asker:
                # Two beats of the collector: it has judged, and nobody is dead.
                until(lambda: "our own clock jumped" in daemon.stderr.read_text(), "the gap")
                asker.settle()
        os.kill(awake[1], signal.SIGCONT)
        agent.go_on()
        assert agent.end() == 0
        row = until(lambda: [row for row in daemon.rows() if row["status"] != "running"], "its end")[0]
        assert row["status"] == "ok"
        assert [r["type"] for r in daemon.trace()] == ["run.start", "log", "log", "run.end"]
        daemon.kill()


@pytest.mark.parametrize("watched", ["by heartbeat", "by its process"])
def test_what_the_freezer_held_is_not_declared_dead(tmp_path, watched):
    """As a container is paused: nobody is told, and everybody goes on at once."""
    wrapper = []
    if watched == "by heartbeat":
        need_pid_namespaces()
        wrapper = UNSHARE
    with (
        freezable() as group,
        Daemon(tmp_path, heartbeat_timeout="2s", wrapper=wrapper) as daemon,
        Agent(daemon.socket, SLEEPER) as agent,
    ):
        agent.wait_ready()
        collector = collector_pid(daemon) if wrapper else daemon.process.pid
        for pid in (collector, agent.process.pid):
            (group / "cgroup.procs").write_text(str(pid))
        for _ in range(2):
            freeze(group, frozen=True)
            asleep = time.monotonic()
            until(lambda begun=asleep: time.monotonic() > begun + 3, "more than the timeout")
            freeze(group, frozen=False)
            with RawClient(daemon.socket) as asker:
                asker.settle()
        until(lambda: "our own clock jumped" in daemon.stderr.read_text(), "the gap")
        agent.go_on()
        assert agent.end() == 0
        row = until(lambda: [row for row in daemon.rows() if row["status"] != "running"], "its end")[0]
        assert row["status"] == "ok"
        assert [r["type"] for r in daemon.trace()] == ["run.start", "log", "log", "run.end"]
        daemon.kill()
