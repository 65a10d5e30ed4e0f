"""Scarce descriptors, full disks, odd senders: what is scarce is waited for, and nobody pays for another."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from support.daemon import Daemon
from support.disks import fill, mounted
from support.processes import Agent
from support.raw_client import RawClient
from support.waiting import until


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path) as running:
        yield running


@pytest.fixture
def small_disk(tmp_path):
    with mounted(tmp_path / "disk", "size=512k") as path:
        yield path


def log(n: int, text: str = "x"):
    return {"n": n, "type": "log", "payload": {"level": "info", "message": text}}


def descriptors(daemon: Daemon) -> int:
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


def test_a_full_disk_is_waited_for(tmp_path, small_disk):
    with Daemon(tmp_path, root=small_disk / "root") as daemon, RawClient(daemon.socket) as client:
        client.hello("a", session_id="s")
        client.send(log(1))
        client.acked(1)
        ballast = fill(small_disk)
        client.send(*[log(n, "y" * 3000) for n in range(2, 12)])
        assert client.expect("error")["code"] == "storage"
        ballast.unlink()
        client.acked(11)
        assert [r["src"]["n"] for r in daemon.trace()[1:]] == list(range(1, 12))
        client.send({"n": 12, "type": "run.end", "status": "ok"})
        client.acked(12)
        until(lambda: daemon.rows()[0]["status"] == "ok", "the end")
        assert daemon.cli("verify").returncode == 0


def test_a_run_that_could_not_be_recovered_is_recovered_when_there_is_room(tmp_path, small_disk):
    with Daemon(tmp_path, root=small_disk / "root") as daemon:
        code = "client.hello('o', session_id='s'); client.send({'n': 1, 'type': 'tool.call', 'name': 't', 'span': '1'}); client.acked(1); ready()"
        with Agent(daemon.socket, code) as agent:
            agent.wait_ready()
            daemon.kill()
            with (daemon.run_dir() / "trace.jsonl").open("ab") as trace:
                trace.write(b'{"torn')
            ballast = fill(small_disk)
            daemon.start()
            ballast.unlink()
            agent.kill()
        until(lambda: daemon.rows()[0]["status"] == "crashed", "the crash")
        assert daemon.cli("verify").returncode == 0


def test_a_living_process_is_not_declared_dead_for_want_of_descriptors(tmp_path):
    limit = 64
    with Daemon(tmp_path) as daemon, RawClient(daemon.socket) as owner:
        owner.hello("owner", session_id="s")
        subprocess.run(["prlimit", f"--nofile={limit}:{limit}", "--pid", str(daemon.process.pid)], check=True)
        with ExitStack() as fillers:
            for _ in range(limit):
                fillers.enter_context(socket.socket(socket.AF_UNIX)).connect(str(daemon.socket))
            until(lambda: descriptors(daemon) >= limit * 3 // 4 - 2, "the limit")
            code = "ready()\nprint(client.hello('member', session_id='s')['op'], flush=True)\nready()"
            agent = fillers.enter_context(Agent(daemon.socket, code))
            agent.wait_ready()
            agent.go_on()
            owner.send(log(1))
            owner.acked(1)
            assert [r for r in daemon.trace() if r["type"] == "source.exit"] == []
            daemon_log = daemon.stderr.read_text()
            assert len(daemon_log) < 10_000, "one line a failure is a storm"
        owner.send({"n": 2, "type": "run.end"})
        owner.acked(2)


def test_short_runs_leave_no_descriptors_behind(daemon):
    with RawClient(daemon.socket) as client:
        client.settle()
    before = descriptors(daemon)
    for n in range(60):
        with RawClient(daemon.socket) as client:
            client.hello(f"s{n}")
            client.send(log(1), {"n": 2, "type": "run.end"})
            client.acked(2)
    until(lambda: all(row["status"] == "ok" for row in daemon.rows()), "all ended")
    until(lambda: descriptors(daemon) <= before + 6, "the descriptors")


def test_a_sender_in_a_folder_without_a_name_in_utf8_is_heard(daemon):
    odd = os.fsencode(daemon.base) + b"/caf\xe9"
    os.mkdir(odd)
    code = 'import socket, sys\ns = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b\'{"type":"log"}\\n\' * 2)'
    subprocess.run([sys.executable, "-c", code, str(daemon.socket)], cwd=odd, check=True)
    until(lambda: daemon.rows() and daemon.rows()[0]["status"] == "ok", "the end")
    assert [r["type"] for r in daemon.trace()] == ["run.start", "log", "log", "run.end"]


def test_a_flood_of_nonsense_is_one_mark_and_stops_nobody(daemon):
    with RawClient(daemon.socket) as flood, RawClient(daemon.socket) as other:
        flood.hello("flood")
        flood.send(*[b"x"] * 20_000)
        other.settle()
        flood.send(log(1))
        while flood.receive().get("op") != "ack":
            pass
        marks = [r for r in daemon.trace() if r["payload"].get("refused")]
        assert 0 < len(marks) < 100


def test_a_session_of_a_damaged_run_is_recorded_in_a_new_one(daemon):
    with RawClient(daemon.socket) as client:
        run_id = client.hello("a", session_id="s")["run_id"]
        client.send(log(1), {"n": 2, "type": "run.end"})
        client.acked(2)
    until(lambda: daemon.rows()[0]["status"] == "ok", "the end")
    daemon.kill()
    trace = daemon.run_dir(run_id) / "trace.jsonl"
    trace.write_bytes(trace.read_bytes().replace(b'"seq":2', b'"seq":-'))
    os.utime(trace, (1e9, 1e9))
    daemon.start()
    with RawClient(daemon.socket) as client:
        assert client.hello("b", session_id="s")["run_id"] != run_id
        client.send(log(1))
        client.acked(1)
