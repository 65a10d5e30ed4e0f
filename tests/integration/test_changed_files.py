"""Files that somebody removes, cuts or replaces while the collector writes them: noticed, said, survived."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from support import otlp_build as build
from support.daemon import Daemon
from support.otlp_send import send
from support.processes import Agent
from support.raw_client import RawClient
from support.waiting import until


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0") as running:
        yield running


def log(n: int, text: str = "x"):
    return {"n": n, "type": "log", "payload": {"level": "info", "message": text}}


def seqs(daemon: Daemon, run_id: str) -> list[int]:
    return [record["seq"] for record in daemon.trace(run_id)]


def said(daemon: Daemon, text: str) -> int:
    return sum(text in line for line in daemon.stderr.read_text().splitlines())


def rows(daemon: Daemon) -> dict[str, str]:
    return {row["run_id"]: row["status"] for row in daemon.rows()}


def removed(folder):
    (folder / "trace.jsonl").unlink()


def emptied(folder):
    (folder / "trace.jsonl").write_bytes(b"")


def cut_at_a_line(folder):
    lines = (folder / "trace.jsonl").read_bytes().splitlines(keepends=True)
    with (folder / "trace.jsonl").open("r+b") as file:
        file.truncate(len(lines[0] + lines[1]))


def cut_in_a_line(folder):
    with (folder / "trace.jsonl").open("r+b") as file:
        file.truncate((folder / "trace.jsonl").stat().st_size - 20)


def written_to(folder):
    with (folder / "trace.jsonl").open("ab") as file:
        file.write(b"a note of mine\n")


def replaced(folder):
    data = (folder / "trace.jsonl").read_bytes()
    (folder / "trace.jsonl").unlink()
    (folder / "trace.jsonl").write_bytes(data)


def folder_removed(folder):
    shutil.rmtree(folder)


HARMS = [removed, emptied, cut_at_a_line, cut_in_a_line, written_to, replaced, folder_removed]


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_a_trace_that_is_harmed_under_its_writer(daemon, harm):
    with RawClient(daemon.socket) as client, RawClient(daemon.socket) as other:
        lost = client.hello("a", session_id="s")["run_id"]
        bystander = other.hello("b", session_id="t")["run_id"]
        client.send(log(1), log(2), log(3))
        client.acked(3)
        harm(daemon.run_dir(lost))
        client.send(log(4))
        answer = client.receive()
        assert (answer["op"], answer["code"]) == ("error", "unknown_run")
        client.send(log(5))
        assert client.receive()["op"] == "error", "first hello again"
        again = client.hello("a", session_id="s")
        assert again["run_id"] not in (lost, bystander)
        assert again["acked"] == 0
        client.send(log(4), log(5))
        client.acked(5)
        records = daemon.trace(again["run_id"])
        assert [r["seq"] for r in records] == [1, 2, 3, 4]
        assert records[0]["payload"]["instead_of"]["run_id"] == lost
        assert "trace.jsonl was" in records[0]["payload"]["instead_of"]["why"]
        assert records[1]["payload"]["lost"] == 3, "what was in the harmed trace"
        other.send(log(1))
        other.acked(1)
        assert (daemon.root / "sessions" / "s").resolve().name == again["run_id"]
        client.send({"n": 6, "type": "run.end", "status": "ok"})
        client.acked(6)
        until(lambda: rows(daemon).get(lost) != "running", "the end of the lost run")
        until(lambda: rows(daemon)[again["run_id"]] == "ok", "the end of the new one")
    assert said(daemon, "what comes goes into a new run") == 1
    if harm in (removed, emptied, folder_removed):
        assert lost not in rows(daemon)
    else:
        assert rows(daemon)[lost] == "crashed"
    if harm in (cut_at_a_line, cut_in_a_line, replaced):
        records = daemon.trace(lost)
        assert [r["seq"] for r in records] == list(range(1, len(records) + 1))
        assert records[-1]["type"] == "source.exit"
        assert "while it was being written" in records[-1]["payload"]["cause"]
    assert said(daemon, "bug of ours") == 0
    daemon.kill()
    daemon.start()
    with RawClient(daemon.socket) as client:
        assert client.hello("c", session_id="s")["run_id"] == again["run_id"]


THIN = """
import agentrund_client as agentrund, sys
with agentrund.run("thin"):
    agentrund.log("one")
    assert agentrund.flush(20)
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(50):
        agentrund.log("more", n=n)
    while not agentrund.flush(5.0):
        pass
"""


def test_the_client_goes_on_in_a_new_run(daemon):
    env = {**daemon.env, "AGENTRUND_SOCKET": str(daemon.socket)}
    with subprocess.Popen(
        [sys.executable, "-c", THIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as agent:
        assert agent.stdout.readline() == "ready\n"
        [lost] = daemon.run_ids()
        shutil.rmtree(daemon.run_dir(lost))
        agent.stdin.write("go\n")
        agent.stdin.flush()
        assert agent.wait(20) == 0
    [again] = [run_id for run_id in daemon.run_ids() if run_id != lost]
    until(lambda: rows(daemon) == {again: "ok"}, "the end")
    numbers = [r["payload"]["n"] for r in daemon.trace(again) if "n" in r["payload"]]
    assert numbers == list(range(50))
    assert daemon.cli("verify").returncode == 0


def test_a_death_after_its_run_was_lost_ends_the_new_one(daemon):
    code = """
client.hello('a', session_id='s'); client.send({'n': 1, 'type': 'log'}); client.acked(1); ready()
client.send({'n': 2, 'type': 'log'})
assert client.receive()['code'] == 'unknown_run'
client.hello('a', session_id='s'); client.send({'n': 2, 'type': 'log'}); client.acked(2); ready()
"""
    with Agent(daemon.socket, code) as agent:
        agent.wait_ready()
        [lost] = daemon.run_ids()
        shutil.rmtree(daemon.run_dir(lost))
        agent.go_on()
        agent.wait_ready()
        agent.kill()
    until(lambda: list(rows(daemon).values()) == ["crashed"], "the crash of the new run")


def test_otlp_data_for_a_lost_run_goes_into_a_new_one(daemon):
    agent = {"gen_ai.operation.name": "invoke_agent"}
    send(daemon.otlp, "traces", build.traces(build.span(1, name="root", attributes=agent)))
    until(lambda: daemon.run_ids() and len(daemon.trace()) == 3, "the run")
    [lost] = daemon.run_ids()
    shutil.rmtree(daemon.run_dir(lost))
    for n in range(2, 6):
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": f"step {n}"}
        send(daemon.otlp, "traces", build.traces(build.span(n, 1, attributes=tool)))

    def calls() -> list[str]:
        runs = [run_id for run_id in daemon.run_ids() if run_id != lost]
        return [r["name"] for run_id in runs for r in daemon.trace(run_id) if r["type"] == "tool.call"]

    until(lambda: calls() == [f"step {n}" for n in range(2, 6)], "the steps in a new run")
    assert said(daemon, "bug of ours") == 0


@pytest.mark.parametrize("harm", ["removed", "emptied", "cut", "written to"])
def test_a_transcript_that_is_harmed_is_made_again(daemon, harm):
    with RawClient(daemon.socket) as client:
        run_id = client.hello("a", session_id="s")["run_id"]
        client.send(*[log(n) for n in range(1, 50)])
        client.acked(49)
        logs = daemon.run_dir(run_id) / "agent.logs"
        until(lambda: logs.exists() and "#0050" in logs.read_text(), "the transcript")
        if harm == "removed":
            logs.unlink()
        elif harm == "emptied":
            logs.write_bytes(b"")
        elif harm == "cut":
            logs.write_bytes(logs.read_bytes()[:-30])
        else:
            logs.write_bytes(logs.read_bytes() + b"a note of mine\n")
        client.send(log(50))
        client.acked(50)
        until(lambda: logs.exists() and "#0051" in logs.read_text(), "the transcript again")
        client.send(log(51), {"n": 52, "type": "run.end", "status": "ok"})
        client.acked(52)
    until(lambda: rows(daemon)[run_id] == "ok", "the end")
    assert daemon.cli("verify").returncode == 0, daemon.cli("verify").stdout
    assert said(daemon, "it is made again from the trace") == 1


def test_blobs_that_are_removed_are_written_again_when_they_come_again(daemon):
    long = "long" * 5000
    with RawClient(daemon.socket) as client:
        run_id = client.hello("a", session_id="s")["run_id"]
        client.send(log(1, long))
        client.acked(1)
        shutil.rmtree(daemon.run_dir(run_id) / "blobs")
        client.send(log(2, long))
        client.acked(2)
        ref = daemon.trace(run_id)[-1]["payload"]["message"]["ref"]
        assert (daemon.run_dir(run_id) / ref).read_text() == long


def one_run(daemon: Daemon) -> str:
    """A run that has ended; returns its id."""
    with RawClient(daemon.socket) as client:
        run_id = client.hello("other")["run_id"]
        client.send({"n": 1, "type": "run.end", "status": "ok"})
        client.acked(1)
    until(lambda: rows(daemon)[run_id] == "ok", "the end")
    return run_id


def test_pointers_and_index_that_are_removed_come_back_with_the_next_run(daemon):
    with RawClient(daemon.socket) as client:
        run_id = client.hello("a", session_id="s")["run_id"]
        other = one_run(daemon)
        for name in ("index.jsonl", "latest", "sessions/s", "NAVIGATE.md"):
            (daemon.root / name).unlink()
        client.send(log(1), {"n": 2, "type": "run.end", "status": "ok"})
        client.acked(2)
        until((daemon.root / "index.jsonl").exists, "an index")
        until(lambda: rows(daemon) == {run_id: "ok", other: "ok"}, "the rows")
        (daemon.root / "sessions").rmdir()
        client.hello("b", session_id="s")
        client.send(log(1))
        client.acked(1)
    assert said(daemon, "bug of ours") == 0
    daemon.kill()
    daemon.start()
    assert json.dumps(rows(daemon))
    with RawClient(daemon.socket) as client:
        client.hello("c", session_id="s")
    assert (daemon.root / "sessions" / "s").exists()


@pytest.mark.parametrize("harm", ["segment removed", "segment emptied", "folder removed", "state removed"])
def test_the_intake_journal_is_harmed_under_load(daemon, harm):
    def request(n: int) -> bytes:
        return build.traces(build.span(n, name=f"step {n}"))

    send(daemon.otlp, "traces", request(1))
    state = daemon.root / ".agentrund"
    [segment] = (state / "intake").iterdir()
    if harm == "segment removed":
        segment.unlink()
    elif harm == "segment emptied":
        segment.write_bytes(b"")
    else:
        shutil.rmtree(state / "intake" if harm == "folder removed" else state)
    for n in range(2, 5):
        send(daemon.otlp, "traces", request(n))
    kept = b"".join(path.read_bytes() for path in (state / "intake").iterdir())
    assert all(b"step %d" % n in kept for n in range(2, 5)), "acknowledged, so in a file that is there"
    assert said(daemon, "intake") == 1
    daemon.kill()
    daemon.start()
    send(daemon.otlp, "traces", request(5))
