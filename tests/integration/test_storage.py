"""Disks that are full, fail or turn read-only under load: nothing is acknowledged that is not stored.

What cannot be stored waits with its senders, is said once, and goes on by itself when the disk is well again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest

from support import otlp_build as build
from support.daemon import Daemon
from support.disks import fill, mounted, use_up_inodes
from support.faults import fault
from support.otlp_send import send
from support.raw_client import RawClient
from support.waiting import until

LINE = "y" * 3000
WRITES = "write,pwrite64,writev"


def log(n: int, text: str = LINE):
    return {"n": n, "type": "log", "payload": {"level": "info", "message": text}}


def spans(first: int, count: int = 1) -> bytes:
    found = [build.span(n, name=f"span {n}", attributes={"text": LINE}) for n in range(first, first + count)]
    return build.traces(*found)


def until_refused(daemon: Daemon) -> tuple[grpc.StatusCode, bool]:
    """Send OTLP until it is refused; returns the status, and whether it says when to come again."""
    try:
        for n in range(100, 200):
            send(daemon.otlp, "traces", spans(n * 10, 10))
    except grpc.RpcError as error:
        return error.code(), "google.rpc.retryinfo-bin" in dict(error.trailing_metadata())
    raise AssertionError("never refused")


class Sender:
    """A raw client that sends without looking, and a thread that writes down what it is answered."""

    def __init__(self, daemon: Daemon, name: str) -> None:
        self.name = name
        self.client = RawClient(daemon.socket)
        assert self.client.hello(name, session_id=name)["op"] == "welcome"
        self.sent = self.acked = 0
        self.errors: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        while True:
            try:
                frame = self.client.receive()
            except (EOFError, OSError, ValueError):
                return
            if frame["op"] == "ack":
                self.acked = frame["n"]
            elif frame["op"] == "error":
                self.errors.append(frame["code"])

    def send(self, count: int, text: str = LINE) -> None:
        first = self.sent + 1
        self.sent += count
        self.client.send(*[log(n, text) for n in range(first, self.sent + 1)])

    def settled(self) -> None:
        until(lambda: self.acked == self.sent, f"the acknowledgement of {self.name}")

    def __enter__(self):
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.sock.shutdown(2)
        self._listener.join(20)
        self.client.close()


def stored(daemon: Daemon, name: str) -> list[int]:
    """Counters of a session's events, in the order of the trace; its seqs have no gap and no torn line."""
    folder = (daemon.root / "sessions" / name).resolve()
    data = (folder / "trace.jsonl").read_bytes()
    records = [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
    assert [r["seq"] for r in records] == list(range(1, len(records) + 1))
    return [r["src"]["n"] for r in records if "n" in r.get("src", {})]


def warnings(daemon: Daemon) -> list[str]:
    return [line for line in daemon.stderr.read_text().splitlines() if "WARNING" in line or "ERROR" in line]


def status(daemon: Daemon) -> dict:
    with RawClient(daemon.socket) as client:
        client.send({"op": "status"})
        return client.expect("status")


def healthy(daemon: Daemon) -> None:
    """All runs that ended are whole, by ``verify``."""
    done = daemon.cli("verify")
    assert done.returncode == 0, done.stdout


def end(senders: list[Sender], daemon: Daemon) -> None:
    for sender in senders:
        sender.sent += 1
        sender.client.send({"n": sender.sent, "type": "run.end", "status": "ok"})
    for sender in senders:
        sender.settled()
    names = {sender.name for sender in senders}
    until(lambda: all(r["status"] == "ok" for r in daemon.rows() if r["session_id"] in names), "the ends")


THIN = """
import agentrund_client as agentrund, sys
with agentrund.run("thin"):
    print("ready", flush=True)
    sys.stdin.readline()
    for i in range(60):
        agentrund.log("y" * 3000, i=i)
    while not agentrund.flush(5.0):
        pass
    print("flushed", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("limit", ["bytes", "file size"])
def test_no_room_under_load(tmp_path, limit):
    with ExitStack() as stack:
        disk = stack.enter_context(mounted(tmp_path / "disk", "size=3m"))
        daemon = stack.enter_context(Daemon(tmp_path, root=disk / "root", otlp_grpc="127.0.0.1:0"))
        thin = stack.enter_context(thin_client(daemon))
        senders = [stack.enter_context(Sender(daemon, f"raw{n}")) for n in range(3)]
        for sender in senders:
            sender.send(20)
            sender.settled()
        send(daemon.otlp, "traces", spans(1))
        give_room = no_room(daemon, disk, limit)
        thin.stdin.write("go\n")
        thin.stdin.flush()
        for sender in senders:
            sender.send(20)
        until(lambda: all("storage" in sender.errors for sender in senders), "the refusals")
        assert until_refused(daemon) == (grpc.StatusCode.UNAVAILABLE, True)
        until(lambda: status(daemon)["storage_trouble"]["since"], "the trouble in status")
        for sender in senders:
            assert sender.errors == ["storage"], "each is told once"
            assert sender.acked <= len(stored(daemon, sender.name))
        give_room()
        for sender in senders:
            sender.settled()
            assert stored(daemon, sender.name) == list(range(1, sender.sent + 1))
        assert thin.stdout.readline() == "flushed\n"
        until(lambda: status(daemon)["storage_trouble"]["since"] is None, "all well")
        send(daemon.otlp, "traces", spans(9000))
        until(lambda: status(daemon)["otlp"]["waiting"] == 0, "the journal worked off")
        thin.stdin.write("go\n")
        thin.stdin.close()
        assert thin.wait(20) == 0
        end(senders, daemon)
        assert len(warnings(daemon)) == 1, "one line a minute"
        assert daemon.stop() == 0
        daemon.start()
        healthy(daemon)


@contextmanager
def thin_client(daemon: Daemon) -> Iterator[subprocess.Popen[str]]:
    env = {**daemon.env, "AGENTRUND_SOCKET": str(daemon.socket)}
    agent = subprocess.Popen(
        [sys.executable, "-c", THIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    try:
        assert agent.stdout.readline() == "ready\n"
        yield agent
    finally:
        agent.kill()
        agent.wait(20)
        agent.stdout.close()
        if not agent.stdin.closed:
            agent.stdin.close()


def no_room(daemon: Daemon, disk: Path, limit: str):
    """Take the room away; returns how to give it back."""
    if limit == "bytes":
        return fill(disk).unlink
    pid = str(daemon.process.pid)
    subprocess.run(["prlimit", "--fsize=70000:unlimited", "--pid", pid], check=True)
    return lambda: subprocess.run(["prlimit", "--fsize=unlimited:unlimited", "--pid", pid], check=True)


def test_no_inodes_refuses_new_runs_and_keeps_the_open_ones_going(tmp_path):
    with mounted(tmp_path / "disk", "size=8m,nr_inodes=60") as disk, ExitStack() as stack:
        daemon = stack.enter_context(Daemon(tmp_path, root=disk / "root"))
        sender = stack.enter_context(Sender(daemon, "open"))
        sender.send(1)
        sender.settled()
        until((daemon.run_dir() / "agent.logs").exists, "the transcript")
        ballast = use_up_inodes(disk)
        newcomer = stack.enter_context(RawClient(daemon.socket))
        newcomer.send({"op": "hello", "v": 1, "source": "new", "session_id": "new"}, log(1))
        assert newcomer.receive()["code"] == "storage"
        sender.send(50)
        sender.settled()
        assert len(daemon.run_ids()) == 1
        assert [row["session_id"] for row in daemon.rows() if row["session_id"] == "new"] == []
        for file in ballast:
            file.unlink()
        assert newcomer.expect("welcome")["attempt"] == 1
        newcomer.acked(1)
        assert sender.errors == []
        end([sender], daemon)
        assert len(warnings(daemon)) == 1
        healthy(daemon)


def test_a_full_disk_at_the_start(tmp_path):
    """The collector starts, serves, and recovers what it could not when there is room."""
    with mounted(tmp_path / "disk", "size=1m") as disk, Daemon(tmp_path, root=disk / "root") as daemon:
        with Sender(daemon, "before") as sender:
            sender.send(5)
            sender.settled()
            daemon.kill()
        with (daemon.run_dir() / "trace.jsonl").open("ab") as trace:
            trace.write(b'{"torn')
        ballast = fill(disk)
        daemon.start()
        assert (daemon.run_dir() / "trace.jsonl").read_bytes().endswith(b'{"torn'), "nothing is cut unkept"
        assert status(daemon)["storage_trouble"]["since"] is not None
        ballast.unlink()
        with RawClient(daemon.socket) as client:
            client.hello("before", session_id="before")
            client.send(log(6))
            client.acked(6)
            until(lambda: status(daemon)["storage_trouble"]["since"] is None, "all well")
        kept = [p.read_bytes() for p in (daemon.root / ".agentrund" / "quarantine").iterdir()]
        assert kept == [b'{"torn']
        assert stored(daemon, "before") == [1, 2, 3, 4, 5, 6]
        assert len(warnings(daemon)) <= 3


def places(daemon: Daemon) -> list[Path]:
    """Every folder and file below the root."""
    return [daemon.root, *(path for path in daemon.root.rglob("*") if not path.is_symlink())]


def test_a_disk_that_turns_read_only_and_back(tmp_path):
    """As a file system does that has met an error (a mount with files open cannot be made read-only)."""
    with Daemon(tmp_path) as daemon, ExitStack() as stack:
        sender = stack.enter_context(Sender(daemon, "open"))
        sender.send(3)
        sender.settled()
        calls = f"{WRITES},ftruncate,openat,mkdirat,renameat,unlinkat,symlinkat"
        with fault(daemon.process.pid, calls, "error=EROFS", *places(daemon)):
            sender.send(3)
            until(lambda: sender.errors == ["storage"], "the refusal")
        sender.settled()
        end([sender], daemon)
        assert len(warnings(daemon)) == 1
        healthy(daemon)


@pytest.mark.parametrize(
    ("calls", "how"),
    [
        ("write", "error=EIO"),
        ("write", "error=EIO:when=2+2"),
        ("write,ftruncate", "error=EIO"),
        ("pwrite64", "error=EIO"),
        ("openat", "error=EIO"),
        ("mkdirat", "error=EIO"),
        ("renameat", "error=EIO"),
        ("symlinkat", "error=EIO"),
        ("unlinkat", "error=EIO"),
    ],
)
def test_input_output_errors_are_waited_for(tmp_path, calls, how):
    """While calls on files below the root fail nothing is lost, and everything is whole afterwards."""
    with Daemon(tmp_path) as daemon, ExitStack() as stack:
        sender = stack.enter_context(Sender(daemon, "open"))
        sender.send(2)
        sender.settled()
        with fault(daemon.process.pid, calls, how, *places(daemon)):
            sender.send(3)
            sender.send(3, "z" * 9000)
            newcomer = stack.enter_context(RawClient(daemon.socket))
            newcomer.send({"op": "hello", "v": 1, "source": "new", "session_id": "new"}, log(1))
            newcomer.send({"n": 2, "type": "run.end", "status": "ok"})
            until(lambda: status(daemon)["storage_trouble"]["since"] or sender.acked == 8, "its effect")
            assert sender.acked <= len(stored(daemon, "open"))
        sender.settled()
        newcomer.acked(2)
        end([sender], daemon)
        assert stored(daemon, "open") == list(range(1, sender.sent + 1))
        until(lambda: all(row["status"] == "ok" for row in daemon.rows()), "the ends")
        until(lambda: status(daemon)["storage_trouble"]["since"] is None, "all well")
        assert len(warnings(daemon)) <= 2
        healthy(daemon)


def test_a_stop_leaves_in_time_whatever_the_disk_does(tmp_path):
    with Daemon(tmp_path) as daemon, RawClient(daemon.socket) as client:
        client.hello("a", session_id="s")
        with fault(daemon.process.pid, "fdatasync,fsync,syncfs", "delay_enter=10000000"):
            client.send({"n": 1, "type": "log"})
            client.acked(1)
            assert daemon.stop() == 0
        assert "too slow for an orderly stop" in daemon.stderr.read_text()
        daemon.start()
        assert [r["type"] for r in daemon.trace()][:2] == ["run.start", "log"]


def test_what_a_failed_write_left_is_cut_before_the_next_line(tmp_path):
    """Short write, and the cut fails too: the torn bytes are remembered, and no line is glued to them."""
    with Daemon(tmp_path) as daemon, Sender(daemon, "open") as sender:
        sender.send(1)
        sender.settled()
        trace = daemon.run_dir() / "trace.jsonl"
        limit = trace.stat().st_size + 1000
        pid = str(daemon.process.pid)
        with fault(daemon.process.pid, "ftruncate", "error=EIO", trace):
            subprocess.run(["prlimit", f"--fsize={limit}:unlimited", "--pid", pid], check=True)
            sender.send(3)
            until(lambda: sender.errors == ["storage"], "the refusal")
            assert trace.stat().st_size == limit, "a torn line lies there"
            subprocess.run(["prlimit", "--fsize=unlimited:unlimited", "--pid", pid], check=True)
            assert status(daemon)["waiting_for_storage"] == 1
            assert trace.stat().st_size == limit, "and nothing is put behind it"
        sender.settled()
        assert stored(daemon, "open") == [1, 2, 3, 4]
