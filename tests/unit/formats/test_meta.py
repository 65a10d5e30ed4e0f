"""meta.json: metadata through a resume, attempts with their ends, no secrets of the command line."""

from __future__ import annotations

import json

import pytest

from agentrund.formats import meta
from support.records import Book
from support.run_root import seed_book


def test_keys_in_order_and_attempts_with_their_ends():
    book = seed_book()
    got = json.loads(meta.encode(book.state))
    assert list(got) == [
        "run_id", "session_id", "created_at", "python", "platform", "cwd", "argv", "git", "tags",
        "task", "framework", "framework_version", "model", "attempts",
    ]  # fmt: skip
    assert got["argv"] == ["agent.py", "--api-key", meta.REDACTED]
    assert got["attempts"] == [
        {
            "n": 1,
            "pid": 4410,
            "started_at": "2026-08-30T14:22:33.000+05:45",
            "ended_at": "2026-08-30T14:23:16.000+05:45",
            "last_seq": 22,
            "outcome": "crashed",
            "cause": "process exited: killed by SIGKILL",
        },
        {
            "n": 2,
            "pid": 48211,
            "started_at": "2026-08-30T14:31:02.000+05:45",
            "ended_at": "2026-08-30T14:31:35.620+05:45",
            "last_seq": 26,
            "outcome": "failed",
            "cause": "run.end",
        },
    ]


def test_a_late_event_raises_its_attempts_last_seq():
    book = Book()
    book.start()
    book.end()
    book.add("log", src={"k": "sock", "id": "a1", "late": True})
    assert json.loads(meta.encode(book.state))["attempts"][0]["last_seq"] == 3


def test_a_running_attempt():
    book = Book()
    book.start(tags=["nightly"], git={"sha": "1a2b3c4", "branch": "main", "dirty": False}, customer="acme")
    got = json.loads(meta.encode(book.state))
    assert (got["tags"], got["git"]["sha"], got["customer"]) == (["nightly"], "1a2b3c4", "acme")
    attempt = got["attempts"][0]
    assert (attempt["outcome"], attempt["ended_at"], attempt["cause"]) == ("running", None, None)


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["--api-key=sk-1"], ["--api-key=__REDACTED__"]),
        (["--api-key", "sk-1", "x"], ["--api-key", "__REDACTED__", "x"]),
        (["--password", "--verbose"], ["--password", "--verbose"]),
        (["GITHUB_TOKEN=ghp_x", "make"], ["GITHUB_TOKEN=__REDACTED__", "make"]),
        (["-H", "Authorization: Bearer abc"], ["-H", "Authorization:__REDACTED__"]),
        (["--client-secret=a=b"], ["--client-secret=__REDACTED__"]),
        (["--token", "t1", "--token", "t2"], ["--token", "__REDACTED__", "--token", "__REDACTED__"]),
        (["--max-tokens", "100"], ["--max-tokens", "100"]),
        (["--max_tokens=100", "--token-limit", "5"], ["--max_tokens=100", "--token-limit", "5"]),
        (["https://secret.example/x", "--mode=fast"], ["https://secret.example/x", "--mode=fast"]),
        ([7, None, "--x"], [7, None, "--x"]),
        ("agent.py --token t", "agent.py --token t"),
        (None, None),
    ],
)
def test_secret_looking_options(argv, shown):
    assert meta.masked(argv) == shown
