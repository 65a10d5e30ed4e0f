"""The parts that need no socket: redaction, the buffer, places, metadata, conversations, artifacts."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund_client import _discover, _meta
from agentrund_client._backoff import Backoff
from agentrund_client._buffer import CONTROL, Buffer
from agentrund_client._messages import prompt_keys
from agentrund_client.redact import MASK, redact, redact_argv, redact_line, redact_text

SECRETS = [
    "sk-abcdefghijklmnop1234",
    "sk-ant-api03-abcdefghijklmnop",
    "ghp_abcdefghijklmnopqrst",
    "github_pat_11ABCDEFG0abcdefghij",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "xoxb-1234567890-abcdef",
    "hf_abcdefghijklmnopqrstuvwx",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-def",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_secrets_anywhere_in_text(secret):
    assert secret not in redact_text(f"before {secret} after")
    assert redact_text(f"before {secret} after").startswith("before ")
    line = (
        json.dumps({"n": 1, "payload": {"text": f"x {secret} y", "deep": [{"a": secret}]}}).encode() + b"\n"
    )
    masked = redact_line(line)
    assert json.dumps(secret)[1:-1].encode() not in masked
    assert masked.endswith(b"\n")
    assert masked.startswith(b'{"n":1,')
    assert json.loads(masked)["payload"]["text"] == f"x {MASK} y"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: Bearer abcdefghijklmnop1234", "abcdefghijklmnop1234"),
        ("postgres://user:hunter22@host/db", "hunter22"),
        ("API_KEY=supersecretvalue", "supersecretvalue"),
        ('{"password": "supersecretvalue"}', "supersecretvalue"),
        ("token: 'supersecretvalue'", "supersecretvalue"),
    ],
)
def test_assignments_in_text(text, masked):
    assert masked not in redact_text(text)
    assert MASK in redact_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "the tokenizer splits",
        "max_tokens=512",
        "https://host/path?x=1",
        "a key to success",
        "sk-short",
        "password: x",
    ],
)
def test_ordinary_text_is_left_alone(text):
    assert redact_text(text) == text
    line = json.dumps({"text": text}).encode() + b"\n"
    assert redact_line(line) is line


def test_keys():
    assert redact({"api-key": "v", "X-Cookie": ["a", {"b": "c"}], "max_tokens": 5, "token": "t", "password": 1234}) == {
        "api-key": MASK, "X-Cookie": [MASK, {"b": MASK}], "max_tokens": 5, "token": MASK, "password": MASK,
    }  # fmt: skip
    assert redact({"secret": None, "tokens": {"in": 3}, "cookie": True}) == {
        "secret": None, "tokens": {"in": 3}, "cookie": True,
    }  # fmt: skip


def test_command_lines():
    words = [
        "a.py",
        "--api-key",
        "v1",
        "--token=v2",
        "PASSWORD=v3",
        "--max-tokens",
        "5",
        "--token",
        "--fast",
        "-x",
    ]
    assert redact_argv(words) == [
        "a.py", "--api-key", MASK, f"--token={MASK}", f"PASSWORD={MASK}", "--max-tokens", "5", "--token", "--fast", "-x",
    ]  # fmt: skip


def test_argv_of_hello_is_masked(client, collector, monkeypatch):
    monkeypatch.setattr("sys.argv", ["agent.py", "--api-key", "hunter2", "--n=3"])
    with client.run():
        pass
    collector.wait(lambda: collector.hellos)
    assert collector.hellos[0]["argv"] == ["agent.py", "--api-key", MASK, "--n=3"]


@given(st.lists(st.sampled_from(["event", "send", "ack", "cut"]), max_size=200), st.integers(1, 6))
def test_the_buffer_accounts_for_every_number(plan, room):
    """Played against a collector that stores what it is sent: in the end every number is stored or admitted lost."""
    buffer = Buffer(10_000, room)
    n, stored, in_flight = 0, [], []

    def send():
        entry = buffer.next()
        if entry is not None:
            buffer.start()
            in_flight.append(entry)

    def ack():
        while in_flight:
            last, _, kind = in_flight.pop(0)
            stored.extend(range(kind or last, last + 1))
            buffer.ack(last, 10)

    for step in plan:
        if step == "event":
            n += 1
            if buffer.admits(b"x"):
                buffer.wait(n, b"x")
            else:
                buffer.drop(n)
        elif step == "send":
            send()
        elif step == "ack":
            ack()
        else:
            in_flight.clear()
            buffer.requeue()
    while buffer.pending or in_flight:
        send()
        ack()
    assert stored == list(range(1, n + 1))
    assert len(buffer) == 0
    assert buffer._bytes == 0


def test_control_frames_are_not_kept():
    buffer = Buffer(100, 10)
    buffer.wait(1, b"e")
    buffer.wait(1, b"flush", CONTROL)
    buffer.start()
    buffer.start()
    assert (len(buffer) - buffer.pending, buffer._bytes) == (1, 1)
    buffer.wait(1, b"flush", CONTROL)
    buffer.requeue()
    assert (buffer.pending, buffer._bytes) == (1, 1)


def test_backoff_doubles_up_to_five_seconds(monkeypatch):
    monkeypatch.setattr("agentrund_client._backoff.time.monotonic", lambda: 100.0)
    backoff = Backoff("")
    delays = []
    for _ in range(10):
        backoff.fail()
        delays.append(backoff.at - 100.0)
    assert delays == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5])
    backoff.reset()
    assert backoff.at == 0
    assert {Backoff(f"s{i}")._share for i in range(20)} != {1.0}


def listening(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    return sock


def test_the_socket_is_found_where_the_protocol_says(place, monkeypatch):
    monkeypatch.delenv("AGENTRUND_SOCKET")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    found = _discover.socket_path()
    assert found is None or not found.startswith(str(place))
    (place / "agentrund").mkdir()
    (place / "agentrund" / "agentrund.sock").write_text("")
    assert not (_discover.socket_path() or "").startswith(str(place))
    (place / "agentrund" / "agentrund.sock").unlink()
    with listening(place / "agentrund" / "agentrund.sock"):
        assert _discover.socket_path() == f"{place}/agentrund/agentrund.sock"
        monkeypatch.setattr(_discover.os, "getuid", lambda: 4711)
        if os.stat(place).st_uid:
            assert _discover.socket_path() is None


def test_a_folder_that_is_a_link_is_not_trusted(place, monkeypatch):
    monkeypatch.delenv("AGENTRUND_SOCKET")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    (place / "real").mkdir()
    (place / "agentrund").symlink_to(place / "real")
    with listening(place / "real" / "agentrund.sock"):
        assert not (_discover.socket_path() or "").startswith(str(place))


@pytest.mark.parametrize(
    ("text", "expected"), [("", 7), ("x", 7), ("-1", 7), ("nan", 7), ("inf", 7), ("12", 12), ("1e3", 1000)]
)
def test_limits_from_the_environment(monkeypatch, text, expected):
    monkeypatch.setenv("AGENTRUND_X", text)
    assert _discover.limit("AGENTRUND_X", 7) == expected


def test_the_spool_folder(monkeypatch):
    monkeypatch.setenv("AGENTRUND_SPOOL", "/a")
    assert _discover.spool_folder() == "/a"
    monkeypatch.delenv("AGENTRUND_SPOOL")
    monkeypatch.setenv("XDG_STATE_HOME", "/b")
    assert _discover.spool_folder() == "/b/agentrund/spool"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/c")
    assert _discover.spool_folder() == "/c/.local/state/agentrund/spool"


def git(folder, *words):
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=b", "-c", "init.defaultBranch=main", *words],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip


def test_git_state_is_read_from_files(tmp_path):
    assert _meta.git_state("/") is None
    repository = tmp_path / "r"
    (repository / "deep" / "er").mkdir(parents=True)
    git(repository, "init")
    assert _meta.git_state(str(repository)) == {"sha": None, "branch": "main", "dirty": None}
    git(repository, "commit", "--allow-empty", "-m", "x")
    sha = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True, check=True
    ).stdout
    expected = {"sha": sha[:7], "branch": "main", "dirty": None}
    assert _meta.git_state(str(repository / "deep" / "er")) == expected
    git(repository, "pack-refs", "--all")
    assert _meta.git_state(str(repository)) == expected
    git(repository, "worktree", "add", "-b", "side", str(tmp_path / "w"))
    assert _meta.git_state(str(tmp_path / "w")) == {**expected, "branch": "side"}
    git(repository, "checkout", "--detach")
    assert _meta.git_state(str(repository)) == {**expected, "branch": None}


def test_conversations():
    assert prompt_keys(4, None) == {"messages": 4}
    assert prompt_keys(None, None) == {}
    assert prompt_keys("hi", None) == {"messages": 1, "text": "hi"}
    messages = [
        {"role": "system", "content": "You plan."},
        {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "id": 3}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "t"}]},
        "bare",
    ]
    assert prompt_keys(messages, None) == {
        "messages": 4,
        "input": messages,
        "text": '[system]\nYou plan.\n\n[user]\nlook\n{"type": "image", "id": 3}\n\n'
        '[assistant]\n{"tool_calls": [{"id": "t"}]}\n\nbare',
    }
    assert prompt_keys(messages, "own")["text"] == "own"


def test_artifacts_go_into_the_runs_folder(client, collector, place):
    folder = place / "run"
    folder.mkdir()
    collector.run_dir = str(folder)
    with client.run() as run:
        path = client.artifact("plots/a.png")
        assert path == folder / "artifacts" / "plots" / "a.png"
        path.write_text("x")
        assert run.artifact_dir() == folder / "artifacts"
        assert stat.S_IMODE(run.artifact_dir().stat().st_mode) == 0o700
        assert client.artifact("/../../etc/passwd") == folder / "artifacts" / "etc" / "passwd"
        assert client.artifact("") == folder / "artifacts"


def test_artifacts_without_a_collector(client, place):
    with client.run() as run:
        path = client.artifact("a.txt")
        path.write_text("x")
        assert path.parent == place / "spool" / f"{run.source}.artifacts"
        assert run.artifact("b.txt").parent == path.parent


def test_other_events(client, collector):
    with client.run():
        client.event("turn.start", "planner", turn=3)
        client.event("run.start")
        client.event("source.join")
        client.event("")
        client.event("has space/slash" + "x" * 100)
    collector.wait(lambda: collector.of_type("run.end"))
    kinds = [event["type"] for event in collector.events[:-1]]
    assert kinds[:4] == ["turn.start", "x.run.start", "x.source.join", "x."]
    assert kinds[4] == ("has_space_slash" + "x" * 100)[:64]
    assert collector.events[0]["payload"] == {"turn": 3}


def test_a_name_of_any_length(client, collector):
    with client.run(), client.agent("n" * 10_000):
        pass
    collector.wait(lambda: collector.of_type("run.end"))
    start = collector.events[0]
    assert len(start["name"]) == 4096
    assert start["payload"]["name"] == "n" * 10_000
