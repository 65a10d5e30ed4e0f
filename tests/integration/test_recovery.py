"""What a kill, a torn write or a careless hand leaves behind is healed at the next start, from the traces."""

from __future__ import annotations

import os

import pytest

from support.daemon import Daemon
from support.processes import Agent
from support.raw_client import RawClient
from support.waiting import until


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path) as running:
        yield running


def log(n: int, text: str = "x"):
    return {"n": n, "type": "log", "payload": {"level": "info", "message": text}}


def one_run(daemon: Daemon, session: str = "s", source: str = "a", *, end: bool = True) -> str:
    """A run of a few events; returns its id."""
    with RawClient(daemon.socket) as client:
        run_id = client.hello(source, session_id=session)["run_id"]
        client.send(log(1), log(2), log(3))
        client.acked(3)
        if end:
            client.send({"n": 4, "type": "run.end", "status": "ok"})
            client.acked(4)
    if end:
        until(lambda: any(r["run_id"] == run_id and r["status"] == "ok" for r in daemon.rows()), "the end")
    return run_id


def sessions(daemon: Daemon) -> dict[str, str] | None:
    """Status by session; None where the index cannot be read."""
    try:
        return {row["session_id"]: row["status"] for row in daemon.rows()}
    except ValueError:
        return None


def healthy(daemon: Daemon) -> None:
    done = daemon.cli("verify")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("hurt", ["missing", "empty", "garbage", "half"])
def test_the_index_is_made_again_from_the_traces(daemon, hurt):
    ended = one_run(daemon, "ended", "a")
    with Agent(
        daemon.socket,
        "client.hello('b', session_id='open'); client.send({'n': 1, 'type': 'log'}); client.acked(1); ready()",
    ) as agent:
        agent.wait_ready()
        daemon.kill()
        index = daemon.root / "index.jsonl"
        data = index.read_bytes()
        if hurt == "missing":
            index.unlink()
        else:
            index.write_bytes(
                {"empty": b"", "garbage": b"\x00\xff nonsense\n" * 3, "half": data[: len(data) // 3]}[hurt]
            )
        daemon.start()
        until(lambda: sessions(daemon) == {"ended": "ok", "open": "running"}, "the rows")
        agent.kill()
        until(lambda: sessions(daemon) == {"ended": "ok", "open": "crashed"}, "crashed")
    assert daemon.trace(ended)[-1]["type"] == "run.end"
    healthy(daemon)


@pytest.mark.parametrize("keep", [1, 40, 100])
def test_a_torn_trace_line_is_quarantined_and_the_run_goes_on(daemon, keep):
    with RawClient(daemon.socket) as client:
        run_id = client.hello("a", session_id="s")["run_id"]
        client.send(log(1), log(2))
        client.acked(2)
        daemon.kill()
    trace = daemon.run_dir(run_id) / "trace.jsonl"
    torn = trace.read_bytes().splitlines(keepends=True)[-1].replace(b'"seq":3', b'"seq":4')[:keep]
    with trace.open("ab") as file:
        file.write(torn)
    daemon.start()
    with RawClient(daemon.socket) as client:
        assert client.hello("a", session_id="s")["acked"] == 2
        client.send(log(3))
        client.acked(3)
    assert [r["seq"] for r in daemon.trace(run_id)] == [1, 2, 3, 4]
    kept = [p.read_bytes() for p in (daemon.root / ".agentrund" / "quarantine").iterdir()]
    assert kept == [torn]


@pytest.mark.parametrize("hurt", [b"", b"garbage\n", None])
def test_the_transcript_is_completed_from_the_trace(daemon, hurt):
    run_id = one_run(daemon, end=False)
    logs = daemon.run_dir(run_id) / "agent.logs"
    until(logs.exists, "the transcript")
    daemon.kill()
    logs.write_bytes(logs.read_bytes()[:-30] if hurt is None else hurt)
    daemon.start()
    text = logs.read_text()
    assert [line[:5] for line in text.split("\n") if line.startswith("#")] == [
        "#0001",
        "#0002",
        "#0003",
        "#0004",
    ]
    with RawClient(daemon.socket) as client:
        client.hello("a", session_id="s")
        client.send({"n": 4, "type": "run.end", "status": "ok"})
        client.acked(4)
    until(lambda: daemon.rows()[0]["status"] == "ok", "the end")
    healthy(daemon)


def test_a_run_that_ended_without_its_files_gets_them(daemon):
    run_id = one_run(daemon)
    daemon.kill()
    folder = daemon.run_dir(run_id)
    before = {name: (folder / name).read_bytes() for name in ("outline.md", "analytics.json", "meta.json")}
    for name in before:
        (folder / name).unlink()
    index = daemon.root / "index.jsonl"
    index.write_bytes(
        index.read_bytes().replace(b'"status":"ok"', b'"status":"running"')[:-5].rstrip() + b"\n"
    )
    daemon.start()
    until(lambda: daemon.rows()[-1]["status"] == "ok", "the row")
    assert {name: (folder / name).read_bytes() for name in before} == before
    healthy(daemon)


def test_rebuild_makes_every_derived_file_again(daemon):
    run_id = one_run(daemon)
    folder = daemon.run_dir(run_id)
    names = ("outline.md", "analytics.json", "meta.json", "agent.logs")
    before = {name: (folder / name).read_bytes() for name in names}
    for running in (True, False):
        if not running:
            daemon.stop()
        for name in names:
            (folder / name).write_bytes(b"spoiled")
        (daemon.root / "index.jsonl").write_bytes(b"")
        assert daemon.cli("verify").returncode == 1
        assert daemon.cli("rebuild", run_id[:16]).returncode == 0
        assert {name: (folder / name).read_bytes() for name in names} == before
        assert daemon.cli("reindex").returncode == 0
        assert [row["status"] for row in daemon.rows()] == ["ok"]
        healthy(daemon)


def test_a_run_that_never_got_a_record_leaves_nothing(daemon):
    run_id = one_run(daemon, end=False)
    daemon.kill()
    (daemon.run_dir(run_id) / "trace.jsonl").write_bytes(b'{"run_id":"half a li')
    # The transcript and the links come after the first record.
    (daemon.run_dir(run_id) / "agent.logs").unlink(missing_ok=True)
    (daemon.root / "latest").unlink()
    (daemon.root / "sessions" / "s").unlink()
    daemon.start()
    assert (daemon.run_ids(), daemon.rows()) == ([], [])
    healthy(daemon)


# -- things in the way ----------------------------------------------------------------------------


@pytest.mark.parametrize("hurt", ["damaged", "hard link", "symlink", "no index"])
def test_one_bad_run_does_not_keep_the_collector_from_starting(daemon, hurt):
    bad, good = one_run(daemon, "bad", "a"), one_run(daemon, "good", "b")
    daemon.kill()
    trace = daemon.run_dir(bad) / "trace.jsonl"
    if hurt == "hard link":
        os.link(trace, daemon.base / "copy")
    elif hurt == "symlink":
        os.symlink(trace, daemon.root / "runs" / "20200101_000000_0000")
    else:
        trace.write_bytes(b"garbage\n" + trace.read_bytes())
    if hurt == "no index":
        (daemon.root / "index.jsonl").unlink()
    daemon.start()
    until(lambda: good in {row["run_id"] for row in daemon.rows()}, "the good run's row")
    one_run(daemon, "next", "c")


def test_a_gitignore_in_any_encoding_is_added_to(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_bytes(b"\xe9t\xe9/\n")
    with Daemon(tmp_path, root=tmp_path / ".runs"):
        pass
    assert (tmp_path / ".gitignore").read_bytes() == b"\xe9t\xe9/\n\n# agentrund\n.runs/\n"


def test_latest_stays_with_the_newest_run_through_a_restart(daemon):
    with Agent(
        daemon.socket,
        "client.hello('old', session_id='old'); client.send({'n': 1, 'type': 'log'}); client.acked(1); ready()",
    ) as agent:
        agent.wait_ready()
        newest = one_run(daemon)
        daemon.kill()
        daemon.start()
        assert os.readlink(daemon.root / "latest") == f"runs/{newest}"


def test_a_source_that_comes_back_after_more_than_an_hour_resumes(daemon):
    run_id = one_run(daemon, "s", "same")
    daemon.kill()
    past = (daemon.run_dir(run_id) / "trace.jsonl").stat().st_mtime - 4000
    os.utime(daemon.run_dir(run_id) / "trace.jsonl", (past, past))
    daemon.start()
    with RawClient(daemon.socket) as client:
        assert client.hello("same", session_id="s")["attempt"] == 2
