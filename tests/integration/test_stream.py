"""The Unix-socket door of a real collector, frame by frame."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.daemon import Daemon
from support.raw_client import RawClient
from support.waiting import until


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path) as running:
        yield running


@pytest.fixture
def client(daemon):
    with RawClient(daemon.socket) as connected:
        yield connected


def log(n: int | None, text: str = "x", **keys):
    return {"n": n, "type": "log", "payload": {"level": "info", "message": text}, **keys}


def types(daemon, run_id=None) -> list[str]:
    return [record["type"] for record in daemon.trace(run_id)]


# -- hello, events, acknowledgements --------------------------------------------------------------


def test_a_run_from_hello_to_end(daemon, client):
    welcome = client.hello(session_id="s", framework="f", task="t", argv=["a"])
    assert welcome["op"] == "welcome"
    assert (welcome["role"], welcome["attempt"], welcome["resume_seq"], welcome["acked"]) == (
        "owner",
        1,
        0,
        0,
    )
    assert welcome["heartbeat_s"] is None
    assert welcome["dir"] == str(daemon.run_dir(welcome["run_id"]))
    client.send(
        {"n": 1, "type": "agent.start", "name": "planner", "span": "1"},
        {"n": 2, "type": "tool.call", "name": "f", "span": "2", "parent": "1", "payload": {"args": {"x": 1}}},
        {"n": 3, "type": "tool.result", "name": "f", "span": "2", "payload": {"text": "42"}},
        {"n": 4, "type": "agent.end", "name": "planner", "span": "1", "status": "ok"},
        {"n": 5, "type": "run.end", "status": "ok"},
    )
    assert client.acked(5) == 6
    trace = daemon.trace()
    assert [r["seq"] for r in trace] == [1, 2, 3, 4, 5, 6]
    assert [r["parent_seq"] for r in trace] == [None, None, 2, 3, 2, None]
    start = trace[0]
    assert list(start) == [
        "run_id",
        "seq",
        "attempt",
        "ts",
        "iso",
        "type",
        "name",
        "parent_seq",
        "status",
        "dur_ms",
        "payload",
    ]
    assert start["payload"]["pid"] == os.getpid()
    assert start["payload"]["source"] == "src-1"
    assert trace[2]["src"] == {"k": "sock", "id": "src-1", "n": 2, "span": "2"}
    assert os.readlink(daemon.root / "latest") == f"runs/{welcome['run_id']}"
    assert os.readlink(daemon.root / "sessions" / "s") == f"../runs/{welcome['run_id']}"


def test_events_are_acknowledged_cumulatively_and_once(daemon, client):
    client.hello()
    client.send(*[log(n) for n in range(1, 101)])
    client.acked(100)
    client.send(log(50), log(101))
    client.acked(101)
    assert types(daemon) == ["run.start", *["log"] * 101]


def test_a_clean_payload_keeps_its_bytes(daemon, client):
    client.hello()
    payload = b'{ "a" : 1.50, "b":"\\u00e9", "big":123456789012345678901234567890 }'
    client.send(b'{"n":1,"type":"x.y","payload":' + payload + b"}")
    client.acked(1)
    assert payload in (daemon.run_dir() / "trace.jsonl").read_bytes()


def test_a_long_string_goes_to_a_blob(daemon, client):
    client.hello()
    text = "line\n" * 5000
    client.send(
        {"n": 1, "type": "llm.prompt", "span": "1", "payload": {"text": text, "deep": [{"code": text}]}}
    )
    client.acked(1)
    payload = daemon.trace()[1]["payload"]
    assert (daemon.run_dir() / payload["text_ref"]).read_text() == text
    assert payload["bytes"] == len(text)
    assert payload["deep"][0]["code"]["ref"] == payload["text_ref"]
    assert len(os.listdir(daemon.run_dir() / "blobs")) == 1


def test_a_hole_in_the_counter_and_a_lost_frame_are_recorded(daemon, client):
    client.hello()
    client.send(log(1), log(4), {"op": "lost", "from": 5, "to": 9}, log(10))
    client.acked(10)
    trace = daemon.trace()
    assert [r["payload"].get("lost") for r in trace[1:]] == [None, 2, None, 5, None]
    assert [r["status"] for r in trace if "lost" in r["payload"]] == ["WARNING", "WARNING"]


def test_flush_answers_after_everything_before_it(daemon, client):
    client.hello()
    client.send(log(1), {"op": "flush", "id": 7})
    flushed = client.expect("flushed")
    assert (flushed["id"], flushed["n"]) == (7, 1)


def test_status_needs_no_hello(daemon, client):
    client.send({"op": "status"})
    status = client.expect("status")
    assert status["pid"] == daemon.process.pid
    assert status["root"] == str(daemon.root)
    assert status["open_runs"] == []


def test_the_fast_path_stays_fast(daemon, client):
    client.hello()
    client.send(*[log(n, "plain words") for n in range(1, 201)])
    client.acked(200)
    client.send({"op": "status"})
    # Hello and status are read the slow way, events are not.
    assert client.expect("status")["slow_lines"] == 2


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "n"),
    [
        (b"nonsense", "bad_json", None),
        (b"[1,2]", "bad_json", None),
        (b'{"n":2,"type":"run.start"}', "bad_event", 2),
        (b'{"n":2,"type":"x","payload":[]}', "bad_event", 2),
        (b'{"n":2,"type":"x y"}', "bad_event", 2),
        (b'{"n":2,"type":"x","span":1}', "bad_event", 2),
        (b'{"n":2,"type":"x","session_id":5}', "bad_event", 2),
        (b'{"n":2,"type":"x","dur_ms":' + b"9" * 400 + b"}", "bad_event", 2),
        (b'{"n":18446744073709551616,"type":"x"}', "bad_event", None),
        (b'{"op":"dance"}', "unknown_op", None),
        (b'{"op":"lost","from":9,"to":1}', "bad_frame", None),
        (b'{"op":"do","what":"explode"}', "bad_frame", None),
        (b'{"op":"do","what":"rebuild","args":{"run":"20200101_000000_0000"}}', "unknown_run", None),
    ],
)
def test_bad_input_gets_its_error_and_loses_nothing_else(daemon, client, line, code, n):
    client.hello()
    client.send(log(1), line, log(3 if n else 2))
    error = client.expect("error")
    assert (error["code"], error.get("n")) == (code, n)
    assert error["message"]
    client.acked(3 if n else 2)
    marks = [r for r in daemon.trace() if r["payload"].get("refused") == code]
    assert len(marks) == (0 if code == "unknown_op" else 1)
    if n:
        assert marks[0]["src"]["n"] == n
    assert sum(r["type"] == "log" and "refused" not in r["payload"] for r in daemon.trace()) == 2


def test_a_line_too_long_is_skipped_and_the_next_one_taken(tmp_path):
    with Daemon(tmp_path, max_line_bytes="64KiB") as daemon, RawClient(daemon.socket) as client:
        assert client.hello()["max_line_bytes"] == 65536
        client.send(log(1), b'{"n":2,"type":"x","payload":{"text":"' + b"y" * 200_000 + b'"}}', log(3))
        assert client.expect("error")["code"] == "line_too_long"
        client.acked(3)
        assert [r["payload"].get("message", "")[:13] for r in daemon.trace()[1:]] == [
            "x",
            "1 events lost",
            "x",
            "frame refused",
        ]


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 1 << 20, 20 << 20])
def test_lines_of_any_size_below_the_limit_are_taken(daemon, client, size):
    client.hello()
    client.send({"n": 1, "type": "x", "payload": {"text": "y" * size}}, log(2))
    client.acked(2)
    payload = daemon.trace()[1]["payload"]
    assert (daemon.run_dir() / payload["text_ref"]).stat().st_size == size


def test_blank_lines_and_a_last_line_without_newline_are_ignored(daemon, client):
    client.hello()
    client.send(b"", b"   ", log(1))
    client.acked(1)
    client.sock.sendall(b'{"n":2,"type":"log"}')
    client.close()
    with RawClient(daemon.socket) as again:
        assert again.hello()["acked"] == 1


def test_after_a_refused_hello_events_are_refused(daemon, client):
    assert client.hello("bad/id")["code"] == "bad_frame"
    client.send(log(1))
    assert client.expect("error")["code"] == "bad_frame"
    assert client.hello("good")["op"] == "welcome"
    client.send(log(1))
    client.acked(1)
    assert types(daemon) == ["run.start", "log"]


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ({"run_id": "20200101_000000_0000"}, "unknown_run"),
        ({"run_id": "../../etc"}, "unknown_run"),
        ({"v": 9}, "unsupported_version"),
    ],
)
def test_a_hello_that_cannot_be_seated(client, keys, code):
    assert client.hello(**keys)["code"] == code


# -- which run ------------------------------------------------------------------------------------


def test_an_open_session_is_joined_and_an_ended_one_resumed(daemon, client):
    first = client.hello("a", session_id="s")
    with RawClient(daemon.socket) as other:
        member = other.hello("b", session_id="s")
        assert (member["run_id"], member["role"], member["attempt"]) == (first["run_id"], "member", 1)
        other.send({"op": "bye"})
        other.settle()
    client.send({"n": 1, "type": "run.end", "status": "ok"})
    client.acked(1)
    with RawClient(daemon.socket) as later:
        resumed = later.hello("c", session_id="s")
        assert (resumed["run_id"], resumed["role"], resumed["attempt"], resumed["resume_seq"]) == (
            first["run_id"],
            "owner",
            2,
            4,
        )
        assert [row["status"] for row in daemon.rows()] == ["running"]
    assert types(daemon) == ["run.start", "source.join", "source.exit", "run.end", "run.resume"]


def test_a_run_is_joined_by_its_id(daemon, client):
    run_id = client.hello("a")["run_id"]
    with RawClient(daemon.socket) as child:
        assert child.hello("b", run_id=run_id)["role"] == "member"
        child.send({"n": 1, "type": "log", "parent": "a/1"})
        child.acked(1)


def test_a_reconnect_of_the_same_source_goes_on(daemon, client):
    client.hello("a")
    client.send(log(1), log(2))
    client.acked(2)
    with RawClient(daemon.socket) as again:
        welcome = again.hello("a")
        assert (welcome["acked"], welcome["attempt"], welcome["role"]) == (2, 1, "owner")
        again.send(log(2), log(3))
        again.acked(3)
    assert types(daemon) == ["run.start", "log", "log", "log"]
    assert client.sock.recv(1) == b""  # the newest connection wins


def test_a_source_that_ended_stays_with_its_attempt(daemon, client):
    client.hello("a", session_id="s")
    client.send({"n": 1, "type": "run.end", "status": "ok"})
    client.acked(1)
    with RawClient(daemon.socket) as again:
        assert again.hello("a", session_id="s")["attempt"] == 1
        again.send(log(2))
        again.acked(2)
    assert types(daemon) == ["run.start", "run.end", "log"]
    assert daemon.trace()[2]["src"]["late"] is True


def test_a_source_that_said_bye_may_come_back(daemon, client):
    client.hello("a", session_id="s")
    with RawClient(daemon.socket) as member:
        member.hello("b", session_id="s")
        member.send({"op": "bye"})
        member.settle()
        assert member.hello("b", session_id="s")["role"] == "member"
    assert types(daemon) == ["run.start", "source.join", "source.exit", "source.join"]


def test_a_living_process_keeps_its_source(daemon, client):
    client.hello("a")
    code = f"""
from pathlib import Path
from support.raw_client import RawClient
from support.waiting import until
print(RawClient(Path({str(daemon.socket)!r})).hello("a")["code"])
"""
    other = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": "tests"},
    )
    assert other.stdout.strip() == "not_allowed"


def test_when_all_have_left_the_collector_ends_the_run(daemon, client):
    client.hello("a")
    client.send(
        {"n": 1, "type": "tool.error", "name": "f", "payload": {"error_type": "E", "error": "x"}},
        {"op": "bye"},
    )
    client.settle()
    end = daemon.trace()[-1]
    assert (end["type"], end["status"], end["payload"]["cause"]) == ("run.end", "failed", "all sources left")


# -- without hello --------------------------------------------------------------------------------


def test_printing_a_line_is_enough(daemon):
    with RawClient(daemon.socket) as client:
        client.send({"type": "log", "payload": {"message": "built in 41 s"}})
    until(lambda: [row for row in daemon.rows() if row["status"] == "ok"], "the end")
    trace = daemon.trace()
    assert [r["type"] for r in trace] == ["run.start", "log", "run.end"]
    assert trace[0]["payload"]["source"].startswith(f"conn-{os.getpid()}-")
    assert trace[0]["payload"]["argv"]
    assert trace[-1]["status"] == "ok"


def test_ten_lines_of_one_session_make_one_attempt(tmp_path):
    with Daemon(tmp_path, idle_close="60s") as daemon:
        for n in range(10):
            with RawClient(daemon.socket) as client:
                client.send({"type": "log", "session_id": "build", "payload": {"message": str(n)}})
                client.settle()
        trace = daemon.trace()
        assert {r["attempt"] for r in trace} == {1}
        assert [r["payload"]["message"] for r in trace if r["type"] == "log"] == [str(n) for n in range(10)]
        assert "run.end" not in [r["type"] for r in trace]


def test_a_session_nobody_comes_back_to_ends(tmp_path):
    with Daemon(tmp_path, idle_close="0s") as daemon:
        with RawClient(daemon.socket) as client:
            client.send({"type": "log", "session_id": "build"})
            client.settle()
        until(lambda: types(daemon)[-1] == "run.end", "the end")


def test_two_sources_on_one_connection_do_not_hurt_each_other(daemon, client):
    client.hello("one", session_id="1")
    client.hello("two", session_id="2")
    with RawClient(daemon.socket) as again:
        assert again.hello("one", session_id="1")["role"] == "owner"
    client.send(log(1))
    client.acked(1)


def test_a_sender_without_hello_that_counts_is_acknowledged(client):
    client.send(log(1), log(2))
    client.acked(2)


def test_a_members_run_end_without_a_number_settles_none(daemon, client):
    client.hello("owner", session_id="s")
    with RawClient(daemon.socket) as member:
        member.hello("member", session_id="s")
        member.send(log(1), {"type": "run.end"})
        member.acked(1)
        assert member.hello("member", session_id="s")["acked"] == 1
        member.send(log(2))
        member.acked(2)


def test_a_child_that_knows_only_its_parent_joins_its_run(daemon, client):
    run_id = client.hello("mother")["run_id"]
    with RawClient(daemon.socket) as child:
        welcome = child.hello("child", parent="mother/7")
        assert (welcome["run_id"], welcome["role"]) == (run_id, "member")


def test_a_run_begins_when_its_source_says_it_began(daemon, client):
    client.hello("a", ts=1.79e9)
    assert daemon.trace()[0]["ts"] == 1.79e9


def test_an_orphan_handed_in_by_a_living_process_ends_with_its_connection(daemon):
    with RawClient(daemon.socket) as hander:
        hander.hello("dead", orphan=True, pid=4242)
        hander.send(log(1), {"n": 2, "type": "tool.call", "name": "f", "span": "1"})
        hander.acked(2)
    row = until(lambda: [row for row in daemon.rows() if row["status"] == "crashed"], "the crash")[0]
    assert row["last_error"] == "process exited"
    assert daemon.trace()[0]["payload"]["pid"] == 4242


def test_a_status_cannot_forge_lines_of_the_transcript(daemon, client):
    client.hello()
    status = (
        "ok\n#9999 12:00:00.000  +0.0s  run.end\n---- attempt 1 ended at 12:00:00 without run.end (x) ----"
    )
    client.send(
        {"n": 1, "type": "tool.result", "status": status, "payload": {"text": "y" * 300}},
        {"n": 2, "type": "run.end", "status": "ok"},
    )
    client.acked(2)
    until(lambda: daemon.rows()[0]["status"] == "ok", "the end")
    assert daemon.cli("verify").returncode == 0


def test_a_hello_that_met_a_full_disk_is_answered_when_there_is_room(tmp_path):
    with Daemon(tmp_path) as daemon:
        subprocess.run(["prlimit", "--fsize=1:", "--pid", str(daemon.process.pid)], check=True)
        with RawClient(daemon.socket) as client:
            assert client.hello("a")["code"] == "storage"
            subprocess.run(["prlimit", "--fsize=unlimited:", "--pid", str(daemon.process.pid)], check=True)
            assert client.expect("welcome")["attempt"] == 1
            client.send(log(1))
            client.acked(1)
        assert daemon.cli("verify").returncode == 0
