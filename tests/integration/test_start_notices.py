"""An OpenTelemetry program with `agentrund_client.otel.watch()`: what has begun is on disk before it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

import agentrund_client.otel
from support.daemon import Daemon
from support.waiting import until

PROGRAM = Path(__file__).parent.parent / "support" / "otel_watched.py"


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path, http="127.0.0.1:0") as running:
        yield running


def start(daemon: Daemon, mode: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), daemon.http, mode]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def steps(daemon: Daemon) -> list[str]:
    return [
        record["type"] for record in daemon.trace() if "." in record["type"] and record["type"][:3] != "run"
    ]


def test_a_step_is_on_disk_while_it_goes_on_and_is_named_when_its_process_dies(daemon):
    with start(daemon, "hang") as program:
        assert program.stdout.readline() == "in the tool\n"
        until(lambda: daemon.rows() and "tool.call" in steps(daemon), "the notice")
        assert steps(daemon) == ["agent.start", "tool.call"]
        program.kill()
        program.wait(20)
    until(lambda: daemon.rows()[0]["status"] == "crashed", "its death")
    logs = (daemon.run_dir() / "agent.logs").read_text()
    assert "without run.end (process exited: killed by SIGKILL)" in logs
    assert "run_python (tool.call, " in logs.partition("without run.end")[2]
    assert daemon.cli("verify").returncode == 0


def test_spans_close_what_was_announced_and_are_told_once(daemon):
    with start(daemon, "ok") as program:
        assert program.wait(60) == 0
    until(lambda: daemon.rows() and daemon.rows()[0]["status"] == "ok", "the end")
    assert [kind for kind in steps(daemon) if kind != "source.exit"] == [
        *("agent.start", "tool.call", "tool.result", "agent.end"),
    ]
    assert daemon.cli("verify").returncode == 0


def test_a_forked_child_announces_its_own(daemon):
    with start(daemon, "fork") as program:
        assert program.stdout.readline() == "in the tool\n"
        assert program.wait(60) == 0
    until(lambda: daemon.rows() and "tool.result" in steps(daemon), "its tool")
    assert steps(daemon)[:2] == ["agent.start", "tool.call"]


def test_a_process_that_has_nothing_to_announce_says_that_it_lives(daemon):
    url = f"http://{daemon.http}/v1"
    notices = agentrund_client.otel.StartNotices(
        OTLPSpanExporter(endpoint=f"{url}/traces"),
        OTLPMetricExporter(endpoint=f"{url}/metrics"),
        Resource({"service.name": "idle"}),
        beat_s=0.01,
    )
    until(lambda: otlp_status(daemon)["requests"] >= 3, "its heartbeats")
    notices.shutdown()
    assert otlp_status(daemon)["duplicates"] == 0
    assert not list(daemon.root.rglob("metrics*.jsonl"))
    assert daemon.run_ids() == []


def otlp_status(daemon: Daemon) -> dict[str, int]:
    return json.loads(daemon.cli("status", "--json").stdout)["otlp"]


def test_without_a_provider_it_says_what_to_do(capfd):
    assert agentrund_client.otel.watch(provider=object()) is None
    assert "set up OpenTelemetry's tracer provider first" in capfd.readouterr().err


def test_switched_off_it_does_nothing(monkeypatch):
    monkeypatch.setenv("AGENTRUND_DISABLED", "1")
    assert agentrund_client.otel.watch(TracerProvider()) is None


def test_without_a_collector_the_program_neither_fails_nor_waits():
    with start(type("Nobody", (), {"http": "127.0.0.1:9"})(), "ok") as program:
        assert program.wait(60) == 0
