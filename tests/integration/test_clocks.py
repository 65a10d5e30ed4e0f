"""A wall clock that is set while the collector records: order, ages and liveness do not go by it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from support.daemon import Daemon
from support.faked_time import FakedTime
from support.namespaces import UNSHARE, need_pid_namespaces
from support.processes import TESTS, Agent
from support.raw_client import RawClient
from support.waiting import until

HOUR, YEARS = 3600, 10 * 365 * 86400
STEPS = {"-1 h": -HOUR, "+1 h": HOUR, "+10 y": YEARS, "back": 0}
PROGRAM = TESTS / "support" / "otel_program.py"


@pytest.fixture
def clock(tmp_path):
    return FakedTime(tmp_path)


def created(daemon: Daemon) -> list[str]:
    """The runs in the order in which they were told of: their session ids are numbers."""
    rows = sorted(daemon.rows(), key=lambda row: int(row["session_id"]))
    return [row["run_id"] for row in rows]


def new_run(daemon: Daemon, number: int) -> str:
    with RawClient(daemon.socket) as client:
        run_id = client.hello(f"src-{number}", session_id=str(number))["run_id"]
        client.send({"n": 1, "type": "log", "payload": {"i": 1}}, {"n": 2, "type": "run.end", "status": "ok"})
        client.acked(2)
    return run_id


def deltas(daemon: Daemon, run_id: str) -> list[str]:
    logs = (daemon.run_dir(run_id) / "agent.logs").read_text()
    return re.findall(r"^#\d{4,} \S+ +(\S+)", logs, re.MULTILINE)


def judged(daemon: Daemon, client: RawClient, n: int, run_id: str) -> None:
    """Wait for a beat of the collector after this moment: it writes the rows of runs that have grown."""
    client.send({"n": n, "type": "llm.prompt"})
    client.acked(n)
    until(lambda: {row["run_id"]: row for row in daemon.rows()}[run_id]["llm_calls"] == n, "a beat")


def test_a_clock_that_is_set_while_runs_go_on(tmp_path, clock):
    need_pid_namespaces()
    # It sees no process of ours, so that it has to go by heartbeats.
    with (
        Daemon(tmp_path, env=clock.env, heartbeat_timeout="3s", wrapper=UNSHARE) as daemon,
        RawClient(daemon.socket) as client,
    ):
        open_run = client.hello("living", pid=1, session_id="0")["run_id"]
        number = 0
        for n, (name, offset) in enumerate(STEPS.items(), start=1):
            clock.set(offset)
            new_run(daemon, number := number + 1)
            judged(daemon, client, n, open_run)
            started = daemon.trace(created(daemon)[-1])[0]["ts"]
            assert abs(started - clock.now()) < 60, name
        # Its deadline comes as well, however far the clock is set back.
        with RawClient(daemon.socket) as silent:
            silent_run = silent.hello("silent", pid=1, session_id=str(number + 1))["run_id"]
        clock.set(-2 * HOUR)
        until(
            lambda: client.send({"op": "heartbeat"}) or len(daemon.trace(silent_run)) > 1,
            "the silent one's end",
        )
        assert daemon.trace(silent_run)[-1]["payload"]["cause"] == "heartbeat lost"
        client.send({"n": len(STEPS) + 1, "type": "run.end", "status": "ok"})
        client.acked(len(STEPS) + 1)
        kinds = [r["type"] for r in daemon.trace(open_run)]
        assert kinds == ["run.start", *["llm.prompt"] * len(STEPS), "run.end"]
        assert created(daemon) == sorted(set(created(daemon)))
        until(lambda: all(row["status"] != "running" for row in daemon.rows()), "the ends")
        for run_id in created(daemon):
            assert all(delta.startswith("+") for delta in deltas(daemon, run_id)), run_id
        assert [r["seq"] for r in daemon.trace(open_run)] == list(range(1, len(kinds) + 1))
        assert daemon.cli("verify").returncode == 0
        daemon.kill()
        # Started again in the past of everything there is: the next id is the greatest all the same.
        daemon.start()
        assert new_run(daemon, number + 2) > max(created(daemon)[:-1])
        daemon.kill()


@pytest.mark.slow
def test_otlp_requests_wait_and_age_by_time_that_passes(tmp_path, clock):
    with (
        Daemon(tmp_path, env=clock.env, otlp_grpc="127.0.0.1:0") as daemon,
        subprocess.Popen(
            [sys.executable, str(PROGRAM), daemon.otlp, "hang"], stdout=subprocess.PIPE, text=True
        ) as program,
    ):
        assert program.stdout.readline() == "flushed\n"
        # What waits for its root does so for seconds, not for an hour more.
        clock.set(-HOUR)
        until(daemon.rows, "the run")
        journal = sorted((daemon.root / ".agentrund" / "intake").iterdir())
        clock.set(YEARS)
        daemon.kill()
        daemon.start()
        program.kill()
        [row] = until(lambda: [row for row in daemon.rows() if row["status"] == "crashed"], "its death")
        assert sorted((daemon.root / ".agentrund" / "intake").iterdir())[: len(journal)] == journal
        assert [r["type"] for r in daemon.trace()].count("llm.prompt") == 1
        assert all(delta.startswith("+") for delta in deltas(daemon, row["run_id"]))


def test_the_hour_that_comes_twice(tmp_path, clock):
    """Local times repeat; ids are in UTC and offsets tell the two apart."""
    twice = [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)]
    with Daemon(tmp_path, env={**clock.env, "TZ": "Europe/Berlin"}) as daemon:
        told = []
        for number, at in enumerate(twice):
            clock.show(at)
            run_id = new_run(daemon, number)
            told.append((run_id, daemon.trace(run_id)[0]["iso"]))
        assert [run_id[:12] for run_id, _ in told] == ["20261025_003", "20261025_013"]
        assert [iso[11:15] for _, iso in told] == ["02:3", "02:3"]
        assert [iso[-6:] for _, iso in told] == ["+02:00", "+01:00"]
        times = [datetime.fromisoformat(iso) for _, iso in told]
        assert abs(times[1] - times[0] - timedelta(hours=1)) < timedelta(minutes=1)
        until(lambda: all(row["status"] == "ok" for row in daemon.rows()), "the ends")
        listed = json.loads(daemon.cli("runs", "--json", "-n", "1").stdout)
        assert listed["run_id"] == told[1][0]


AGENT = """
client.close()
os.environ["AGENTRUND_SOCKET"] = sys.argv[1]
import agentrund_client as ar
run = ar.run("skewed")
with ar.agent("a"), ar.tool("t"):
    ar.log("x")
assert ar.flush(20)
ready()
with ar.tool("u"):
    pass
run.end("ok")
assert ar.flush(20)
"""


@pytest.mark.parametrize("skew", [-HOUR, pytest.param(HOUR, marks=pytest.mark.slow)])
def test_a_sender_whose_clock_is_another(tmp_path, clock, skew):
    clock.set(skew)
    with (
        Daemon(tmp_path) as daemon,
        Agent(daemon.socket, AGENT, env=clock.env) as agent,
    ):
        agent.wait_ready()
        clock.set(-skew)
        agent.go_on()
        assert agent.end() == 0
        [row] = until(lambda: [row for row in daemon.rows() if row["status"] == "ok"], "the end")
        trace = daemon.trace()
        assert [r["seq"] for r in trace] == list(range(1, len(trace) + 1))
        steps = [r["dur_ms"] for r in trace if r["type"] in ("tool.result", "agent.end")]
        assert len(steps) == 3
        assert all(0 <= took < 20_000 for took in steps)
        assert all(delta.startswith("+") for delta in deltas(daemon, row["run_id"]))
        assert daemon.cli("verify").returncode == 0
