"""A disk that takes 300 ms for each sync: nobody waits for it who need not, and nothing is lost."""

from __future__ import annotations

import pytest

from support.daemon import Daemon
from support.raw_client import RawClient
from support.strace import Call, calls, straced
from support.waiting import until

SLOW = "inject=fdatasync,fsync,syncfs:delay_enter=300000"
SYNCS = ("fdatasync", "fsync", "syncfs")
EVENTS = 40


@pytest.fixture(params=["interval", "always"])
def daemon(tmp_path, request):
    with Daemon(tmp_path, sync=request.param) as running:
        yield running


def log(n: int):
    return {"n": n, "type": "log", "payload": {"level": "info", "message": f"event {n}"}}


def syncs(found: list[Call]) -> list[Call]:
    return [call for call in found if call.name in SYNCS]


def test_interval_everybody_is_answered_while_a_sync_is_under_way(tmp_path):
    with Daemon(tmp_path) as daemon, RawClient(daemon.socket) as client, RawClient(daemon.socket) as asker:
        client.hello("a")
        with straced(daemon, "-e", SLOW) as trace:
            for n in range(1, 100 * EVENTS):
                client.send(log(n))
                client.acked(n)
                asker.send({"op": "status"})
                asker.expect("status")
                if n % EVENTS == 0 and trace.read_text().count("(DELAYED)") > 2:
                    break
        found = calls(trace)
        slow = [call for call in syncs(found) if "(DELAYED)" in call.text]
        for op in ("ack", "status"):
            answers = [c.began for c in found if c.name == "sendto" and f'\\"op\\":\\"{op}\\"' in c.text]
            during = [sum(sync.began < at < sync.returned for at in answers) for sync in slow]
            assert min(during) > 2, f"{op}: they go on, one after another, whatever the disk is at"


def test_always_what_comes_while_a_sync_is_under_way_shares_the_next(tmp_path):
    with Daemon(tmp_path, sync="always") as daemon, RawClient(daemon.socket) as client:
        client.hello("a")
        with straced(daemon, "-e", SLOW) as trace:
            for n in range(1, EVENTS + 1):
                client.send(log(n))
                until(lambda want=n + 1: len(daemon.trace()) == want, "the event, written by itself")
            client.acked(EVENTS)
        found = calls(trace)
        written = [c for c in found if c.name == "write" and "trace.jsonl>" in c.text]
        assert len(written) == EVENTS
        of_trace = [c for c in syncs(found) if "trace.jsonl>)" in c.text]
        assert len(of_trace) < EVENTS / 2, "in groups"


def test_what_was_acknowledged_survives_a_kill(daemon):
    with RawClient(daemon.socket) as client:
        client.hello("a")
        with straced(daemon, "-e", SLOW) as trace:
            for n in range(1, EVENTS + 1):
                client.send(log(n))
            acked = client.acked(EVENTS // 2)
            until(lambda: "fdatasync(" in trace.read_text(), "a sync")
            daemon.process.kill()
        daemon.kill()
    daemon.start()
    records = daemon.trace()
    assert acked <= len(records)
    assert [r["seq"] for r in records] == list(range(1, len(records) + 1))
    assert daemon.cli("verify").returncode == 0
