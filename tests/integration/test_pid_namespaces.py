"""Pids that say little: one that comes twice, one that everybody has, one that we cannot see."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from support.daemon import Daemon
from support.namespaces import UNSHARE, need_pid_namespaces
from support.processes import TESTS, Agent
from support.raw_client import RawClient
from support.waiting import until

PROGRAM = TESTS / "support" / "otel_program.py"
PID_REUSE = TESTS / "support" / "pid_reuse.py"

WORK = """
client.hello(sys.argv[2], pid=os.getpid(), session_id=sys.argv[3])
client.send({"n": 1, "type": "log", "payload": {"pid": os.getpid()}})
client.acked(1)
ready()
"""


@pytest.fixture(autouse=True)
def _need_them():
    need_pid_namespaces()


def exits(daemon: Daemon, run_id: str) -> list[tuple[str, str]]:
    found = [r["payload"] for r in daemon.trace(run_id) if r["type"] == "source.exit"]
    return [(payload["source"], payload["cause"]) for payload in found]


def statuses(daemon: Daemon) -> dict[str, str]:
    return {row["session_id"]: row["status"] for row in daemon.rows()}


# -- a pid that comes twice -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("door", "when", "cause"),
    [
        ("sock", "down", "process exited"),
        ("sock", "stopped", "process exited: killed by SIGKILL"),
        ("otlp", "down", "process exited"),
        pytest.param("otlp", "stopped", "process exited: killed by SIGKILL", marks=pytest.mark.slow),
    ],
)
def test_another_process_with_the_same_pid_is_not_taken_for_the_dead_one(tmp_path, door, when, cause):
    done = subprocess.run(
        [*UNSHARE, sys.executable, str(PID_REUSE), str(tmp_path), door, when],
        check=False, capture_output=True, text=True, timeout=100, env={**os.environ, "PYTHONPATH": str(TESTS)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # The heir lives: nobody was ever sent a signal for what another process had done.
    assert json.loads(done.stdout) == {
        "status": "crashed", "cause": cause, "heir lives": True, "verified": True,
    }  # fmt: skip


# -- a pid that everybody has ---------------------------------------------------------------------


@pytest.mark.parametrize("sessions", [("one", "two"), ("both", "both")])
def test_two_senders_that_are_both_pid_1_are_two(tmp_path, sessions):
    with (
        Daemon(tmp_path) as daemon,
        Agent(daemon.socket, WORK, "a", sessions[0], wrapper=UNSHARE) as first,
        Agent(daemon.socket, WORK, "b", sessions[1], wrapper=UNSHARE) as second,
    ):
        first.wait_ready()
        second.wait_ready()
        records = [record for run_id in daemon.run_ids() for record in daemon.trace(run_id)]
        assert [r["payload"]["pid"] for r in records if r["type"] == "log"] == [1, 1]
        joined = [r["payload"] for r in records if r["type"] in ("run.start", "source.join")]
        assert len({payload["pid"] for payload in joined} - {1}) == 2
        assert {payload.get("pid_from") for payload in joined} == {None}

        first.kill()
        # In one session either of them may have come first.
        dead = next(
            run_id
            for run_id in daemon.run_ids()
            if any(r["payload"].get("source") == "a" for r in daemon.trace(run_id))
        )
        until(lambda: exits(daemon, dead), "the death")
        assert exits(daemon, dead) == [("a", "process exited: killed by SIGKILL")]
        assert statuses(daemon)[sessions[1]] == "running"
        second.kill()
        until(lambda: set(statuses(daemon).values()) == {"crashed"}, "the other death")
        assert len(daemon.run_ids()) == len(set(sessions))


def otlp_program(daemon: Daemon, mode: str = "hang") -> subprocess.Popen[str]:
    """An OpenTelemetry program that is pid 1 of its namespace, and says so."""
    return subprocess.Popen(
        [*UNSHARE, sys.executable, str(PROGRAM), daemon.otlp, mode], stdout=subprocess.PIPE, text=True
    )


def test_two_otlp_senders_that_are_both_pid_1_are_two(tmp_path):
    with (
        Daemon(tmp_path, otlp_grpc="127.0.0.1:0") as daemon,
        otlp_program(daemon) as first,
        otlp_program(daemon) as second,
    ):
        assert [p.stdout.readline() for p in (first, second)] == ["flushed\n"] * 2
        first.kill()
        until(lambda: [row for row in daemon.rows() if row["status"] == "crashed"], "the death")
        [dead] = daemon.run_ids()  # what the other sent still waits for its root
        assert daemon.trace(dead)[0]["payload"]["resource"]["process.pid"] == 1
        second.kill()
        until(
            lambda: len([row for row in daemon.rows() if row["status"] == "crashed"]) == 2, "the other death"
        )
        starts = [daemon.trace(run_id)[0]["payload"] for run_id in daemon.run_ids()]
        assert len({start["source"] for start in starts}) == 2
        assert len({start["pid"] for start in starts} - {1}) == 2


# -- a pid that we cannot see ---------------------------------------------------------------------


@pytest.fixture
def blind(tmp_path):
    """A collector in a namespace of its own: it cannot see our processes."""
    with Daemon(tmp_path, heartbeat_timeout="3s", otlp_grpc="127.0.0.1:0", wrapper=UNSHARE) as daemon:
        yield daemon
        daemon.kill()  # unshare passes no other signal on


def test_a_sender_that_cannot_be_seen_is_judged_by_its_silence(blind):
    with RawClient(blind.socket) as client, RawClient(blind.socket) as other:
        welcome = client.hello("far", pid=12345)
        assert welcome["heartbeat_s"] == 0.75
        start = blind.trace()[0]["payload"]
        assert (start["pid"], start["pid_from"]) == (12345, "client")
        # As long as it beats it lives: the other one falls silent meanwhile, after it.
        run_id = other.hello("silent", pid=1)["run_id"]

        def silent_is_dead():
            client.send({"op": "heartbeat"})
            return exits(blind, run_id)

        assert until(silent_is_dead, "the end of the silent one") == [("silent", "heartbeat lost")]
        assert exits(blind, welcome["run_id"]) == []
        until(lambda: exits(blind, welcome["run_id"]), "its own end")
        assert exits(blind, welcome["run_id"]) == [("far", "heartbeat lost")]


def test_the_death_of_a_sender_that_cannot_be_seen_is_seen_all_the_same(blind):
    """The kernel's handle on the peer works across namespaces, where the kernel gives one."""
    with Agent(blind.socket, WORK, "a", "s") as agent, RawClient(blind.socket) as other:
        agent.wait_ready()
        other.hello("witness", session_id="s")
        agent.kill()

        def dead():
            other.send({"op": "heartbeat"})
            return exits(blind, blind.run_ids()[0])

        assert until(dead, "the death") in ([("a", "process exited")], [("a", "heartbeat lost")])
        if hasattr(os, "pidfd_open") and kernel() >= (6, 5):
            assert exits(blind, blind.run_ids()[0]) == [("a", "process exited")]


def kernel() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int(minor)


@pytest.mark.slow
def test_what_otlp_senders_say_of_their_pid_is_nobodys_death(blind):
    """Both say that they are pid 1, and for this collector pid 1 is itself; nobody is there to be watched."""
    with otlp_program(blind) as first, otlp_program(blind) as second:
        assert [p.stdout.readline() for p in (first, second)] == ["flushed\n"] * 2
        until(lambda: len(blind.rows()) == 2, "both runs")
        # Longer than the grace after a process has gone: seen by what is told afterwards.
        with otlp_program(blind, "ok") as third:
            assert third.wait(60) == 0
            until(lambda: [row for row in blind.rows() if row["status"] == "ok"], "the third's end")
        assert sorted(row["status"] for row in blind.rows()) == ["ok", "running", "running"]
        first.kill()
        second.kill()
