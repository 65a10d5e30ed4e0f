"""The OTLP door of a real collector, with the real exporter in real processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import grpc
import pytest

from support import otlp_build
from support.daemon import Daemon
from support.otlp_send import send
from support.processes import TESTS
from support.waiting import until

PROGRAM = Path(__file__).parent.parent / "support" / "otel_program.py"


WAITING = """
import sys
from pathlib import Path
from support.otlp_send import send
print("ready", flush=True)
sys.stdin.readline()
send(sys.argv[1], "traces", Path(sys.argv[2]).read_bytes())
print("sent", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0", http="127.0.0.1:0") as running:
        yield running


@pytest.fixture(params=["grpc", "http"])
def start(daemon, request):
    """Starts the program, in a mode, over either door."""

    def begin(mode: str) -> subprocess.Popen[str]:
        address = daemon.http if request.param == "http" else daemon.otlp
        command = [sys.executable, str(PROGRAM), address, mode, request.param]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    return begin


def ended(daemon: Daemon, count: int = 1) -> list[dict]:
    """The rows of the index once ``count`` runs have ended."""

    def rows():
        found = [row for row in daemon.rows() if row["status"] != "running"]
        return found if len(found) == count else None

    return until(rows, f"{count} ended runs")


def types(daemon: Daemon) -> list[str]:
    return [record["type"] for record in daemon.trace()]


STORY = [
    "run.start",
    "agent.start",
    "llm.prompt",
    "llm.response",
    "tool.call",
    "tool.result",
    "agent.end",
    "source.exit",
    "run.end",
]


def test_a_program_with_the_sdk_is_one_run(daemon, start):
    with start("ok") as program:
        program.wait(60)
        pid = program.pid
    [row] = ended(daemon)
    assert (row["status"], row["llm_calls"], row["tool_calls"]) == ("ok", 1, 1)
    assert types(daemon) == STORY
    trace = daemon.trace()
    assert trace[0]["payload"]["pid"] == pid
    assert [r["parent_seq"] for r in trace[:7]] == [None, None, 2, 3, 2, 5, 2]
    assert daemon.cli("verify").returncode == 0


def test_how_a_program_ended_is_known_although_its_request_waits(daemon):
    """Requests are answered before they are worked off; the one who watches must have begun by then."""
    body = daemon.base / "begun.bin"
    body.write_bytes(otlp_build.traces(otlp_build.span(2, 1, attributes={"gen_ai.operation.name": "chat"})))
    command = [sys.executable, "-c", WAITING, daemon.otlp, str(body)]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True, cwd=TESTS) as program:
        assert program.stdout.readline() == "ready\n"
        for n in range(8):
            spans = [otlp_build.span(i + 2, 1) for i in range(4000)]
            send(daemon.otlp, "traces", otlp_build.traces(*spans, resource={"n": n}))
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "sent\n"
        program.kill()
    crashed = until(lambda: [row for row in daemon.rows() if row["status"] == "crashed"], "the crash")
    assert "process exited: killed by SIGKILL" in {row["last_error"] for row in crashed}


def test_a_killed_program_crashes_with_what_it_had_asked_for(daemon, start):
    with start("hang") as program:
        assert program.stdout.readline() == "flushed\n"
        program.kill()
    [row] = ended(daemon)
    assert (row["status"], row["last_error"]) == ("crashed", "process exited: killed by SIGKILL")
    logs = (daemon.run_dir() / "agent.logs").read_text()
    assert "without run.end (process exited: killed by SIGKILL) ----" in logs
    [prompt] = [r for r in daemon.trace() if r["type"] == "llm.prompt"]
    assert f"     open: - run_python (requested in #{prompt['seq']:04d})\n" in logs
    assert "(parent never arrived)\n" in logs
    assert daemon.cli("verify").returncode == 0


def test_what_was_acknowledged_survives_a_kill_of_the_collector(daemon, start):
    with start("hang") as program:
        assert program.stdout.readline() == "flushed\n"
        # Acknowledged, and still held back for its root: only the intake journal has it.
        daemon.kill()
        daemon.start()
        until(lambda: daemon.rows() and "llm.response" in types(daemon), "the replay")
        program.kill()
    [row] = ended(daemon)
    assert row["status"] == "crashed"
    assert types(daemon).count("llm.prompt") == 1
    assert daemon.cli("verify").returncode == 0


def test_a_restart_after_everything_is_stored_adds_nothing(daemon, start):
    with start("ok") as program:
        program.wait(60)
    ended(daemon)
    before = (daemon.run_dir() / "trace.jsonl").read_bytes()
    daemon.kill()
    daemon.start()
    assert daemon.stop() == 0
    assert (daemon.run_dir() / "trace.jsonl").read_bytes() == before


def test_a_body_that_is_none_is_refused_and_hurts_nobody(daemon, start):
    with pytest.raises(grpc.RpcError) as caught:
        send(daemon.otlp, "traces", b"\xff\xff\xffnonsense")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with start("ok") as program:
        program.wait(60)
    assert ended(daemon)[0]["status"] == "ok"
