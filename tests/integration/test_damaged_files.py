"""Whatever lies in a root at the start, deleted, damaged or planted: the collector starts and serves all else."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import otlp_build as build
from support.daemon import Daemon
from support.metric_points import metric_line
from support.otlp_send import send
from support.raw_client import RawClient
from support.waiting import until


def log(n: int):
    return {"n": n, "type": "log", "payload": {"level": "info", "message": "x"}}


def deleted(path: Path, _canary: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def emptied(path: Path, canary: Path) -> None:
    put(path, b"", canary)


def cut(path: Path, canary: Path) -> None:
    put(path, path.read_bytes()[:-7] if path.is_file() else b"", canary)


def zeroed(path: Path, canary: Path) -> None:
    put(path, bytes(path.stat().st_size if path.is_file() else 100), canary)


def scrambled(path: Path, canary: Path) -> None:
    put(path, random.Random(7).randbytes(3000) + b"\n" + random.Random(8).randbytes(500), canary)


def a_folder(path: Path, canary: Path) -> None:
    deleted(path, canary)
    path.mkdir()
    (path / "somebody's").write_bytes(b"file")


def a_link(path: Path, canary: Path) -> None:
    deleted(path, canary)
    path.symlink_to(canary)


def a_fifo(path: Path, canary: Path) -> None:
    deleted(path, canary)
    os.mkfifo(path)


def put(path: Path, data: bytes, canary: Path) -> None:
    deleted(path, canary)
    path.write_bytes(data)


SEGMENT = "0000000000000001.jsonl"
HARMS = [deleted, emptied, cut, zeroed, scrambled, a_folder, a_link, a_fifo]


def run_of(root: Path, session: str) -> Path:
    return (root / "sessions" / session).resolve()


def otlp_run(root: Path) -> Path:
    """The run that no session is of."""
    of_sessions = {link.resolve().name for link in (root / "sessions").iterdir()}
    (own,) = [path for path in (root / "runs").iterdir() if path.name not in of_sessions]
    return own


PLACES: dict[str, Callable[[Daemon], Path]] = {
    "lock": lambda d: d.root / ".agentrund" / "lock",
    "intake": lambda d: next((d.root / ".agentrund" / "intake").iterdir()),
    "intake folder": lambda d: d.root / ".agentrund" / "intake",
    "quarantine": lambda d: d.root / ".agentrund" / "quarantine",
    "index": lambda d: d.root / "index.jsonl",
    "latest": lambda d: d.root / "latest",
    "session link": lambda d: d.root / "sessions" / "open",
    "navigate": lambda d: d.root / "NAVIGATE.md",
    "trace of an open run": lambda d: run_of(d.root, "open") / "trace.jsonl",
    "transcript of an open run": lambda d: run_of(d.root, "open") / "agent.logs",
    "meta of an open run": lambda d: run_of(d.root, "open") / "meta.json",
    "trace of an ended run": lambda d: run_of(d.root, "ended") / "trace.jsonl",
    "transcript of an ended run": lambda d: run_of(d.root, "ended") / "agent.logs",
    "analytics": lambda d: run_of(d.root, "ended") / "analytics.json",
    "meta of an ended run": lambda d: run_of(d.root, "ended") / "meta.json",
    "blobs": lambda d: run_of(d.root, "open") / "blobs",
    "metrics": lambda d: otlp_run(d.root) / "metrics.jsonl",
    "metrics of no run": lambda d: d.root / ".agentrund" / "metrics" / SEGMENT,
    "metrics folder": lambda d: d.root / ".agentrund" / "metrics",
    "discovery file": lambda d: d.socket.with_suffix(".json"),
    "socket lock": lambda d: d.socket.with_name(".agentrund.sock.lock"),
}
REFUSED = {("lock", h) for h in ("a_folder", "a_link", "a_fifo")}
REFUSED |= {("socket lock", h) for h in ("a_folder", "a_link")}
REFUSED |= {("index", h) for h in ("a_folder", "a_link", "a_fifo")}
REFUSED |= {("discovery file", harm.__name__) for harm in HARMS if harm not in (deleted, emptied)}
"""Nothing safe can be done about these: the collector says so and ends."""


@contextmanager
def killed(tmp_path: Path) -> Iterator[Daemon]:
    """A collector that was killed with one run open, one ended, one to check, and OTLP in its journal."""
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0") as daemon:
        for session in ("ended", "good", "open"):
            with RawClient(daemon.socket) as client:
                client.hello(session, session_id=session)
                client.send(log(1), {"n": 2, "type": "log", "payload": {"message": "long" * 5000}}, log(3))
                client.acked(3)
                if session != "open":
                    client.send({"n": 4, "type": "run.end", "status": "ok"})
                    client.acked(4)
        until(lambda: sum(row["status"] == "ok" for row in daemon.rows()) == 2, "the ends")
        until((run_of(daemon.root, "open") / "agent.logs").exists, "the transcript")
        send(daemon.otlp, "traces", build.traces(build.span(1, name="root")))
        until(lambda: len(daemon.run_ids()) == 4, "the OTLP run")
        send(daemon.otlp, "metrics", build.metrics(build.counter("before")))
        until(lambda: measured(daemon, "before"), "its metrics")
        daemon.kill()
        (daemon.root / ".agentrund" / "quarantine").mkdir(exist_ok=True)
        stray = daemon.root / ".agentrund" / "metrics"
        stray.mkdir(exist_ok=True)
        (stray / SEGMENT).write_bytes(metric_line(None))
        yield daemon


def measured(daemon: Daemon, name: str) -> bool:
    """Whether a point of that name is somewhere."""
    files = (*daemon.root.glob("runs/*/metrics.jsonl"), *daemon.root.glob(".agentrund/metrics/*.jsonl"))
    plain = [path for path in files if path.is_file() and not path.is_symlink()]
    return any(f'"name":"{name}"'.encode() in path.read_bytes() for path in plain)


def serves(daemon: Daemon) -> None:
    """New runs, a resumed run, OTLP, metrics."""
    with RawClient(daemon.socket) as client:
        assert client.hello("again", session_id="good")["attempt"] == 2
        client.send(log(1), {"n": 2, "type": "run.end", "status": "ok"})
        client.acked(2)
        new = client.hello("new", session_id="new")["run_id"]
        client.send(log(1), {"n": 2, "type": "run.end", "status": "ok"})
        client.acked(2)
        open_again = client.hello("open", session_id="open")
        assert open_again["op"] == "welcome"
        client.send(log(4), {"n": 5, "type": "run.end", "status": "ok"})
        client.acked(5)
    send(daemon.otlp, "traces", build.traces(build.span(2, name="after")))
    send(daemon.otlp, "metrics", build.metrics(build.counter("after")))
    until(lambda: measured(daemon, "after"), "metrics")
    wanted = {"good", "new", "open"}
    until(lambda: wanted <= {r["session_id"] for r in daemon.rows() if r["status"] == "ok"}, "the ends")
    assert [r["seq"] for r in daemon.trace(new)] == [1, 2, 3]


def said_well(daemon: Daemon) -> None:
    text = daemon.stderr.read_text()
    assert "Traceback" not in text, text
    assert "bug of ours" not in text, text
    assert len(text) < 10_000


@pytest.mark.slow
@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("place", PLACES)
def test_one_bad_file(tmp_path, place, harm):
    canary = tmp_path / "canary"
    canary.write_bytes(b"untouched")
    with killed(tmp_path) as daemon:
        harm(PLACES[place](daemon), canary)
        if (place, harm.__name__) in REFUSED:
            done = daemon.cli("serve", "--otlp-grpc", "off", "--socket", str(daemon.socket))
            assert done.returncode == 4, done
            assert len(done.stderr.splitlines()) == 2, done.stderr
            assert "hint:" in done.stderr
        else:
            daemon.start()
            serves(daemon)
        said_well(daemon)
        assert canary.read_bytes() == b"untouched"


TOGETHER = [place for place in PLACES if place not in ("lock", "socket lock", "index", "discovery file")]


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_everything_bad_at_once(tmp_path, harm):
    canary = tmp_path / "canary"
    canary.write_bytes(b"untouched")
    with killed(tmp_path) as daemon:
        for path in [PLACES[place](daemon) for place in TOGETHER]:
            if path.parent.is_dir():  # its folder may be gone with the one before
                harm(path, canary)
        daemon.start()
        serves(daemon)
        said_well(daemon)
        assert canary.read_bytes() == b"untouched"
