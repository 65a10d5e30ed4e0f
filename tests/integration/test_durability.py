"""What is on stable storage when something is acknowledged, and what follows when the disk fails to keep it."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from support.daemon import Daemon
from support.otlp_build import any_value, logs
from support.otlp_send import send
from support.raw_client import RawClient
from support.strace import Call, calls, failing_disk, straced
from support.waiting import until

LONG = "y" * 9000
"""Long enough for a blob."""


@pytest.fixture
def always(tmp_path):
    with Daemon(tmp_path, sync="always", otlp_grpc="127.0.0.1:0") as running:
        yield running


@pytest.fixture(params=["always", "interval"])
def daemon(tmp_path, request):
    with Daemon(tmp_path, sync=request.param, otlp_grpc="127.0.0.1:0") as running:
        yield running


def log(n: int, text: str = "x"):
    return {"n": n, "type": "log", "payload": {"level": "info", "message": text}}


def request(text: str) -> bytes:
    return logs(LogRecord(time_unix_nano=1_790_000_000_000_000_000, body=any_value(text)))


def one(found: list[Call], *names: str, has: str) -> Call:
    """The first call of one of these names that tells of ``has``."""
    return next(call for call in found if call.name in names and has in call.text)


def synced(found: list[Call], what: str, after: Call, before: Call) -> bool:
    """Whether a sync of a file or folder began after one call and had succeeded before another."""
    return any(
        call.name in ("fdatasync", "fsync", "syncfs")
        and f"{what}>)" in call.text
        and call.text.rstrip().endswith("= 0")
        and after.returned < call.began
        and call.returned < before.began
        for call in found
    )


def test_always_an_ack_follows_the_sync_of_all_it_stands_for(always):
    with straced(always) as trace, RawClient(always.socket) as client:
        run_id = client.hello("a", session_id="s")["run_id"]
        client.send(log(1, LONG))
        client.acked(1)
    found = calls(trace)
    start, event = (one(found, "write", has=f'\\"seq\\":{n},') for n in (1, 2))
    welcome, ack = (one(found, "sendto", has=f'\\"op\\":\\"{op}\\"') for op in ("welcome", "ack"))
    for what in ("trace.jsonl", run_id, "/runs", "/sessions", "/root", "index.jsonl"):
        assert synced(found, what, start, welcome), what
    for what in ("trace.jsonl", ".txt", "/blobs", run_id):
        assert synced(found, what, event, ack), what


def test_always_an_otlp_answer_follows_the_sync_of_its_request(always):
    with straced(always) as trace:
        send(always.otlp, "logs", request("remember me"))
    found = calls(trace)
    stored = one(found, "writev", has="remember me")
    answer = one(found, "sendmsg", has="grpc-status")
    assert synced(found, ".intake", stored, answer)
    assert synced(found, "/intake", stored, answer)


def test_always_a_request_leaves_the_journal_after_the_sync_of_its_run(always):
    def marked() -> list[Call]:
        return [call for call in calls(trace) if call.name == "writev" and ".intake>" in call.text][1:]

    with straced(always) as trace:
        send(always.otlp, "logs", request("remember me"))
        [mark] = until(marked, "the mark")
    found = calls(trace)
    event = next(
        c for c in found if c.name == "write" and "trace.jsonl>" in c.text and "remember me" in c.text
    )
    assert synced(found, "trace.jsonl", event, mark)


def test_a_call_that_was_under_way_when_strace_left_is_seen(tmp_path):
    trace = tmp_path / "strace.log"
    trace.write_text(
        "1  fdatasync(3</intake>) = 0\n"
        '2  sendmsg(7<socket>, "grpc-status" <unfinished ...>\n'
        "1  epoll_wait(4 <unfinished ...>\n"
        "1  <... epoll_wait resumed>) = 0\n"
        "3  fdatasync(5</trace.jsonl> <detached ...>\n"
    )
    found = calls(trace)
    assert [(c.name, c.began, c.returned) for c in found] == [
        ("fdatasync", 0, 0),
        ("sendmsg", 1, 5),
        ("epoll_wait", 2, 3),
        ("fdatasync", 4, 4),
    ]
    first, last = found[0], found[-1]
    assert one(found, "sendmsg", has="grpc-status").began == 1
    assert not synced(found, "trace.jsonl", first, Call("", "", 9, 9)), "it was not seen to succeed"
    assert last.text.endswith("<detached ...>")


def test_interval_does_not_wait_for_the_disk(tmp_path):
    with Daemon(tmp_path) as daemon, RawClient(daemon.socket) as client, failing_disk(daemon):
        client.hello("a")
        client.send(log(1))
        assert client.receive() == {"op": "ack", "n": 1, "seq": 2}


def test_always_what_was_not_kept_is_not_acknowledged_until_it_was_written_again(always):
    with RawClient(always.socket) as client, RawClient(always.socket) as again:
        run_id = client.hello("a", session_id="s")["run_id"]
        client.send(log(1))
        client.acked(1)
        with failing_disk(always):
            client.send(log(2, LONG))
            assert client.receive()["code"] == "storage"
            client.send(log(3))
            again.send({"op": "hello", "v": 1, "source": "b", "session_id": "s"})
            assert again.receive()["code"] == "storage"
            with RawClient(always.socket) as asker:
                asker.send({"op": "status"})
                status = asker.expect("status")
        assert status["last_error"].endswith(": not on stable storage: Input/output error")
        assert client.receive()["op"] == "ack"
        client.acked(3)
        assert again.expect("welcome")["run_id"] == run_id
        client.send({"op": "flush", "id": 1})
        assert client.expect("flushed")["n"] == 3
    trace = always.trace()
    assert [r["seq"] for r in trace] == list(range(1, len(trace) + 1))
    assert [r["src"]["n"] for r in trace if "n" in (r.get("src") or {})] == [1, 2, 3]
    [note] = [r for r in trace if r["payload"].get("sync_failed")]
    assert (note["type"], note["status"], note["payload"]["sync_failed"]) == (
        "log",
        "WARNING",
        "Input/output error",
    )
    assert always.stderr.read_text().count("not on stable storage") == 1
    assert always.cli("verify").returncode == 0


def test_no_flushed_for_what_was_not_kept(daemon):
    with RawClient(daemon.socket) as client:
        client.hello("a", session_id="s")
        with failing_disk(daemon):
            client.send(log(1), {"op": "flush", "id": 1})
            assert client.expect("error")["code"] == "storage"
        client.send(log(2))
        client.acked(2)
        client.send({"op": "flush", "id": 2})
        assert client.expect("flushed") == {"op": "flushed", "id": 2, "n": 2}
    assert len([r for r in daemon.trace() if r["payload"].get("sync_failed")]) == 1
    assert daemon.cli("verify").returncode == 0


def test_what_was_written_is_written_again_to_its_place(always):
    with RawClient(always.socket) as client:
        client.hello("a", session_id="s")
        size = (always.run_dir() / "trace.jsonl").stat().st_size
        with straced(always, "-e", "inject=fdatasync:error=EIO:when=1") as trace:
            client.send(log(1))
            assert client.receive()["code"] == "storage"
            client.acked(1)
    found = calls(trace)
    again = one(found, "pwrite64", has='\\"seq\\":2,')
    assert f", {size}) = " in again.text
    assert synced(found, "trace.jsonl", again, one(found, "sendto", has='\\"op\\":\\"ack\\"'))


def test_always_an_otlp_request_that_was_not_kept_is_refused_and_stored_once(always):
    body = request("once")
    with failing_disk(always):
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as caught:
                send(always.otlp, "logs", body)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.RpcError) as caught:
            send(always.otlp, "logs", request("another"))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    def taken() -> bool:
        try:
            send(always.otlp, "logs", body)
        except grpc.RpcError:
            return False
        return True

    until(taken, "the disk to be believed again")
    until(lambda: always.run_ids() and len(always.trace()) >= 2, "the run")
    always.kill()
    always.start()
    assert [r["payload"]["message"] for r in always.trace() if r["type"] == "log"].count("once") == 1


def test_always_a_stop_waits_for_the_last_acknowledgement(always):
    with RawClient(always.socket) as client:
        client.hello("a", session_id="s")
        with straced(always, "-e", "inject=fdatasync:delay_enter=200000"):
            client.send(log(1))
            until(lambda: len(always.trace()) == 2, "the event")
            assert always.stop() == 0
        assert client.acked(1) == 2


def test_always_what_a_killed_collector_had_written_is_synced_before_it_counts(always):
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    always.kill()
    trace = always.base / "start.log"
    always.wrapper = ["strace", "-f", "-o", str(trace), "-e", "trace=syncfs"]
    always.start()
    try:
        assert re.search(r"syncfs\(\d+\) += 0", trace.read_text())
    finally:
        strace = always.process.pid
        os.kill(int(Path(f"/proc/{strace}/task/{strace}/children").read_text()), signal.SIGTERM)
        always.process.wait(30)
