"""A process limit on descriptors: newcomers wait, open runs go on, and nobody is told anything wrong."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from support import otlp_build as build
from support.daemon import Daemon
from support.otlp_send import send
from support.raw_client import RawClient
from support.waiting import until

LIMIT = 64
CROWD = 200
LONG = "long" * 5000


def log(n: int, text: str = "x"):
    return {"n": n, "type": "log", "payload": {"level": "info", "message": f"{n} {text}"}}


def descriptors(daemon: Daemon) -> int:
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


def crowd(stack: ExitStack, daemon: Daemon, door: str) -> None:
    host, _, port = daemon.otlp.rpartition(":")
    for _ in range(CROWD):
        if door == "socket":
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(daemon.socket))
        else:
            stack.enter_context(socket.create_connection((host, int(port))))


@pytest.mark.parametrize("door", ["socket", "otlp"])
@pytest.mark.parametrize("when", ["at the start", "while it runs"])
def test_open_runs_go_on_when_a_crowd_takes_every_descriptor(tmp_path, when, door):
    wrapper = ["prlimit", f"--nofile={LIMIT}:{LIMIT}"] if when == "at the start" else []
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0", wrapper=wrapper) as daemon, ExitStack() as outer:
        owner = outer.enter_context(RawClient(daemon.socket))
        run_id = owner.hello("owner", session_id="s")["run_id"]
        owner.send(log(1))
        owner.acked(1)
        if when == "while it runs":
            pid = str(daemon.process.pid)
            subprocess.run(["prlimit", f"--nofile={LIMIT}:{LIMIT}", "--pid", pid], check=True)
            until(lambda: limits(daemon)[0] < LIMIT, "the reserve")
        with ExitStack() as stack:
            crowd(stack, daemon, door)
            until(lambda: descriptors(daemon) >= LIMIT * 3 // 4 - 4, "the crowd")
            # Blobs, a transcript, a trace: each needs descriptors of its own.
            for n in range(2, 40):
                owner.send(log(n, LONG))
                owner.acked(n)
            env = {**daemon.env, "AGENTRUND_SOCKET": str(daemon.socket)}
            thin = outer.enter_context(
                subprocess.Popen([sys.executable, "-c", THIN], env=env, stdout=subprocess.PIPE, text=True)
            )
            assert thin.stdout.readline() == "emitted\n"
            owner.send({"n": 40, "type": "run.end", "status": "ok"})
            owner.acked(40)
            until(lambda: daemon.rows()[0]["status"] == "ok", "the derived files")
        newcomer = outer.enter_context(RawClient(daemon.socket))
        assert newcomer.hello("newcomer")["op"] == "welcome"
        assert thin.wait(30) == 0
        send(daemon.otlp, "traces", build.traces(build.span(1)))
        until(
            lambda: [r["session_id"] for r in daemon.rows() if r["status"] == "ok"] == ["s", "thin"], "thin"
        )
        assert [r["src"]["n"] for r in daemon.trace(run_id) if "n" in r.get("src", {})] == list(range(1, 41))
        assert daemon.cli("verify").returncode == 0
        assert len(daemon.stderr.read_text()) < 10_000, "one line a minute"
        assert "bug of ours" not in daemon.stderr.read_text()


THIN = """
import agentrund_client as agentrund
with agentrund.run("thin"):
    for n in range(100):
        agentrund.log("x", n=n)
    print("emitted", flush=True)
    while not agentrund.flush(5.0):
        pass
"""


def limits(daemon: Daemon) -> tuple[int, int]:
    """Soft and hard."""
    out = subprocess.run(
        [
            "prlimit",
            "--nofile",
            "--raw",
            "--noheadings",
            "--output=SOFT,HARD",
            "--pid",
            str(daemon.process.pid),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    soft, hard = out.stdout.split()
    return int(soft), int(hard)
