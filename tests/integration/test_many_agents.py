"""Many agent processes in one session, some of them killed, the collector too: nothing lost, nothing twice."""

from __future__ import annotations

import os
import random

import pytest

from support.busy import COUNT, Busy, check, wait_all
from support.daemon import Daemon
from support.waiting import until


@pytest.fixture
def seed(request):
    chosen = int(os.environ.get("AGENTRUND_TEST_SEED", random.randrange(1 << 30)))
    print(f"AGENTRUND_TEST_SEED={chosen}")  # noqa: T201 - shown with a failure, to play it again
    return random.Random(chosen)


def kill_some(agents: list[Busy], victims: list[Busy], seed: random.Random) -> None:
    for victim in victims:
        at = seed.randrange(1, COUNT - 500)
        until(lambda victim=victim, at=at: victim.sent() >= at, f"{victim.name} at {at}")
        victim.kill()


def test_eight_processes_three_of_them_killed(tmp_path, seed):
    with Daemon(tmp_path) as daemon:
        agents = [Busy(daemon, f"a{n}") for n in range(8)]
        kill_some(agents, seed.sample(agents, 3), seed)
        wait_all(agents)
        check(daemon, agents, collector_lived=True)


def test_the_same_with_the_collector_killed_twice(tmp_path, seed):
    with Daemon(tmp_path) as daemon:
        agents = [Busy(daemon, f"a{n}") for n in range(8)]
        victims = seed.sample(agents, 3)
        for part in (1, 2):
            until(lambda part=part: sum(a.sent() for a in agents) > part * 8 * COUNT // 5, "progress")
            daemon.kill()
            victims[part].kill()
            daemon.start()
        kill_some(agents, victims[:1], seed)
        wait_all(agents)
        check(daemon, agents, collector_lived=False)


def test_killed_at_random_points_no_call_that_returned_is_lost(tmp_path, seed):
    """A short form of ``bench/banner_latency.py``, which kills 200."""
    with Daemon(tmp_path) as daemon:
        for round_ in range(5):
            agents = [
                Busy(daemon, f"r{round_}-{n}", session=f"r{round_}-{n}", count=10_000_000) for n in range(8)
            ]
            for agent in agents:
                at = seed.randrange(1, 2000)
                until(lambda agent=agent, at=at: agent.sent() >= at, f"{agent.name} at {at}")
                agent.kill()
            wait_all(agents)
            until(lambda: all(row["status"] == "crashed" for row in daemon.rows()), "all crashed")
            rows = {row["session_id"]: row["run_id"] for row in daemon.rows()}
            for agent in agents:
                run_id = rows[agent.name]
                got = [r["payload"]["i"] for r in daemon.trace(run_id) if r["type"] == "log"]
                assert len(got) >= agent.sent()
                assert got == list(range(len(got)))
                assert "killed by SIGKILL" in (daemon.run_dir(run_id) / "agent.logs").read_text()
        assert daemon.cli("verify").returncode == 0
