"""Ids that try to lead out of the root, through every door: refused, or one safe name each."""

from __future__ import annotations

import json
import os
import re

import pytest

from agentrund.model.errors import NoSuchRun
from agentrund.model.ids import is_run_id, link_name
from agentrund.receivers.decode.labels import short_session
from agentrund.views.folder import Root
from agentrund.views.resolve import resolve
from support.daemon import Daemon
from support.otlp_build import span, traces
from support.otlp_send import send
from support.planting import Outside, listing
from support.raw_client import RawClient
from support.waiting import until

HOSTILE = [
    "../x", "a/../../x", "/abs", "..", ".", "x" * 5000, "x" * 1000, "x" * 1000 + "y", "a\0b", "a\nb", "C:\\x", "con", "\u200fx",
    "\u202ex", "аdmin", "admin", "latest", "-rf", "runs", ".agentrund", "%2e%2e%2fx", "..%2fx", "~root", "$HOME", "*", "a b",
    ".s.new", "%", "%sha256-x", "\x1b[2J",
]  # fmt: skip
SHORT = [text for text in HOSTILE if len(text) <= 1024]
FILES = {
    "trace.jsonl", "agent.logs", "outline.md", "analytics.json", "meta.json", "blobs",
}  # fmt: skip


@pytest.fixture
def outside(tmp_path):
    found = Outside(tmp_path)
    yield found
    assert found.untouched()


@pytest.fixture
def daemon(tmp_path, outside):
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0") as running:
        yield running
        assert inside_is_tidy(running)
        assert {path.name for path in tmp_path.iterdir()} <= {"root", "s", "spool", "stderr.txt", "outside"}


def inside_is_tidy(daemon: Daemon) -> bool:
    """Every name in the root is one that the collector makes."""
    root = daemon.root
    assert {p.name for p in root.iterdir()} <= {
        "runs", "sessions", "latest", "index.jsonl", "NAVIGATE.md", ".agentrund",
    }  # fmt: skip
    for run in (root / "runs").iterdir():
        assert is_run_id(run.name)
        assert {p.name for p in run.iterdir()} <= FILES
    for link in (root / "sessions").iterdir():
        assert re.fullmatch(r"[A-Za-z0-9_%][A-Za-z0-9._%-]{0,199}", link.name)
        assert re.fullmatch(r"\.\./runs/[0-9]{8}_[0-9]{6}_[0-9a-f]{4,}", os.readlink(link))
    return True


def answer(daemon: Daemon, frame: dict) -> dict:
    with RawClient(daemon.socket) as client:
        client.send(frame)
        return client.receive()


def hello(source: str, **keys) -> dict:
    return {"op": "hello", "v": 1, "source": source, **keys}


def test_ids_of_the_stream(daemon):
    run_of = {}
    for number, text in enumerate(HOSTILE):
        found = answer(daemon, hello(f"a{number}", session_id=text))
        if text in SHORT:
            assert found["op"] == "welcome", found
            run_of[text] = found["run_id"]
        else:
            assert (found["op"], found["code"]) == ("error", "bad_frame")
        for code, frame in (
            ("bad_frame" if text not in SHORT else "unknown_run", hello(f"b{number}", run_id=text)),
            ("bad_event" if text not in SHORT else "unknown_run", {"n": 1, "type": "log", "run_id": text}),
            ("bad_frame", hello(text + "/")),
            ("bad_event", {"n": 1, "type": text + "/"}),
            ("unknown_run", {"op": "do", "what": "rebuild", "args": {"run": text}}),
        ):
            refusal = answer(daemon, frame)
            assert (refusal["op"], refusal["code"]) == ("error", code), frame
    assert len(set(run_of.values())) == len(SHORT)
    for text, run_id in run_of.items():
        assert answer(daemon, hello("again" + run_id, session_id=text))["run_id"] == run_id
        assert os.readlink(daemon.root / "sessions" / link_name(text)) == f"../runs/{run_id}"


def test_names_of_the_stream(daemon):
    with RawClient(daemon.socket) as client:
        client.hello(
            meta={text: text for text in SHORT}, tags=SHORT, argv=SHORT, cwd=HOSTILE[0], task=SHORT[-1]
        )
        for n, text in enumerate(SHORT, start=1):
            client.send({"n": n, "type": "tool.call", "name": text, "span": text, "parent": text,
                         "payload": {text: text, "text": text, "text_ref": text}})  # fmt: skip
        client.acked(len(SHORT))
        client.send({"n": len(SHORT) + 1, "type": "run.end", "status": "ok"})
        client.acked(len(SHORT) + 1)
    until(lambda: [r["status"] for r in daemon.rows()] != ["running"], "the end")
    assert [r["name"] for r in daemon.trace() if r["type"] == "tool.call"] == SHORT
    assert daemon.cli("verify").returncode == 0


def test_ids_over_otlp(daemon):
    for number, text in enumerate(HOSTILE):
        header = text if text.isascii() and text.isprintable() else "../header"
        body = traces(
            span(number + 1, name=text, attributes={"session.id": text, text or "k": text}),
            resource={"service.instance.id": text, "service.name": text, "agentrund.session_id": text},
        )
        send(daemon.otlp, "traces", body)
        body = traces(span(number + 1000, name=text), resource={"agentrund.run_id": text, "n": number})
        send(daemon.otlp, "traces", body, (("x-agentrund-run-id", header),))
    until(lambda: json.loads(daemon.cli("status", "--json").stdout)["otlp"]["waiting"] == 0, "all stored")
    sessions = {link.name for link in (daemon.root / "sessions").iterdir()}
    assert {link_name(short_session(text)) for text in HOSTILE} <= sessions
    assert len({short_session(text) for text in HOSTILE}) == len(HOSTILE)


def test_names_of_spool_files(daemon):
    names = [
        "..jsonl",
        "-rf.jsonl",
        "a\nb.jsonl",
        "%2e%2e.jsonl",
        "\x1b[2J.jsonl",
        "x" * 249 + ".jsonl",
        "\u202ex.jsonl",
    ]
    (daemon.base / "spool").mkdir()
    for name in names:
        (daemon.base / "spool" / name).write_text("no hello\n")
    kept = daemon.root / ".agentrund" / "quarantine"
    until(lambda: kept.exists() and len(list(kept.iterdir())) >= len(names) - 1, "the quarantine")
    assert all("/" not in p.name and p.read_text() == "no hello\n" for p in kept.iterdir())
    assert "\x1b" not in daemon.stderr.read_text()


def test_arguments_of_commands(daemon):
    answer(daemon, hello("a", session_id="s"))
    until((daemon.run_dir() / "agent.logs").exists, "the transcript")
    before = listing(daemon.root / "runs")
    for text in HOSTILE:
        if text != "latest":
            with pytest.raises(NoSuchRun):
                resolve(Root(daemon.root), text)
    for text in ("../../outside", "..", "runs", "\x1b[2J"):
        for command in ("show", "tail", "rebuild", "verify"):
            done = daemon.cli(command, "--", text)
            assert done.returncode == 3, (command, text, done.stderr)
            assert "\x1b" not in done.stderr
    assert listing(daemon.root / "runs") == before
