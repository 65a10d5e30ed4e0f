"""Asking a collector: its answers, its refusals, and nobody there."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from agentrund.model.errors import Damaged, NoSuchRun, Rejected, Unavailable, UsageError
from agentrund.service import ask


@pytest.fixture
def collector(tmp_path):
    """Answers one connection with what it is told to, after one line has come."""
    path = tmp_path / "a.sock"
    threads = []
    heard = []

    def answering(*lines: bytes):
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen()

        def serve():
            with server, server.accept()[0] as peer, peer.makefile("rb") as lines_in:
                heard.append(json.loads(lines_in.readline()))
                peer.sendall(b"".join(lines))

        thread = threading.Thread(target=serve)
        thread.start()
        threads.append(thread)
        return path

    answering.heard = heard
    yield answering
    for thread in threads:
        thread.join(10)


def test_status(collector):
    path = collector(b'{"op":"status","pid":7}\n')
    assert ask.status(path) == {"op": "status", "pid": 7}
    assert collector.heard == [{"op": "status"}]


def test_do_yields_progress_and_done(collector):
    path = collector(b'{"op":"progress","done":1,"total":2}\n{"op":"other"}\n{"op":"done"}\n')
    assert [f["op"] for f in ask.do(path, "rebuild", {"run": "x"})] == ["progress", "done"]
    assert collector.heard == [{"op": "do", "what": "rebuild", "args": {"run": "x"}}]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("unknown_run", NoSuchRun),
        ("storage", Unavailable),
        ("overloaded", Unavailable),
        ("unknown_op", Rejected),
    ],
)
def test_refusals(collector, code, kind):
    path = collector(json.dumps({"op": "error", "code": code, "message": "why"}).encode() + b"\n")
    with pytest.raises(kind, match="why"):
        list(ask.do(path, "rebuild", {}))


def test_damage_the_collector_met_is_damage_here(collector):
    message = "rebuild: /r/runs/x/trace.jsonl:7: not a trace record"
    frame = {"op": "error", "code": "storage", "kind": "damaged", "message": message}
    path = collector(json.dumps(frame).encode() + b"\n")
    with pytest.raises(Damaged) as caught:
        list(ask.do(path, "rebuild", {}))
    assert str(caught.value) == message


@pytest.mark.parametrize("answer", [b"", b'{"op":"status"', b'{"op":"progress"}\n'])
def test_hanging_up_early(collector, answer):
    with pytest.raises(Unavailable, match="hung up"):
        list(ask.do(collector(answer), "reindex", {}))


def test_something_else_listens_there(collector):
    with pytest.raises(Unavailable, match="no collector"):
        ask.status(collector(b"SSH-2.0\n"))


def test_nobody_is_there(tmp_path):
    with pytest.raises(Unavailable, match=r"nowhere\.sock"):
        ask.status(tmp_path / "nowhere.sock")


def test_a_path_no_socket_can_have(tmp_path):
    with pytest.raises(UsageError, match=f"the limit is {ask.places.SOCKET_PATH_MAX}"):
        ask.status(tmp_path / ("x" * 200))


def test_silence_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(ask, "STATUS_TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "a.sock"))
        server.listen()
        with pytest.raises(Unavailable, match="does not answer"):
            ask.status(tmp_path / "a.sock")


def write_lock(root, content: str):
    (root / ".agentrund").mkdir(exist_ok=True)
    (root / ".agentrund" / "lock").write_text(content)


def test_holder_is_who_answers(tmp_path):
    path = tmp_path / "a.sock"
    assert ask.holder(tmp_path) is None
    dead = json.dumps({"pid": 1, "socket": str(path)})
    impossible = [json.dumps({"pid": 1, "socket": name}) for name in ("/x" * 100, "/x\0")]
    for content in ("", "{", "{}", '{"pid":1}', *impossible, dead):
        write_lock(tmp_path, content)
        assert ask.holder(tmp_path) is None
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        assert ask.holder(tmp_path) == path


def test_whom_to_ask(tmp_path, monkeypatch):
    monkeypatch.setattr(ask.places, "find_socket", lambda named, env: None)
    with pytest.raises(Unavailable, match="no collector is running"):
        ask.find_collector(None, tmp_path)
    assert ask.find_collector(tmp_path / "named", tmp_path) == tmp_path / "named"
    monkeypatch.setattr(ask.places, "find_socket", lambda named, env: tmp_path / "usual")
    assert ask.find_collector(None, tmp_path) == tmp_path / "usual"


def test_a_named_root_is_asked_through_its_holder_only(tmp_path, monkeypatch):
    monkeypatch.setattr(ask.places, "find_socket", lambda named, env: tmp_path / "another's")
    with pytest.raises(Unavailable, match=f"no collector holds {tmp_path}"):
        ask.collector_of(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "a.sock"))
        server.listen()
        write_lock(tmp_path, json.dumps({"pid": 1, "socket": str(tmp_path / "a.sock")}))
        assert ask.collector_of(tmp_path) == tmp_path / "a.sock"
