"""Agents made of other people's libraries against a live collector: instrumented Python, and Node."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.daemon import Daemon
from support.model_endpoint import scripted_model
from support.waiting import until

TESTS = Path(__file__).parents[1]
PYTHON_AGENT = TESTS / "support" / "openai_agent.py"
NODE = TESTS / "node"
INSTRUMENTATIONS = {
    "openinference": "openinference.instrumentation.openai",
    "genai": "opentelemetry.instrumentation.openai_v2",
}
KILLED = "process exited: killed by SIGKILL"


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


HAS_AGENTS = all(map(is_installed, ("openai", *INSTRUMENTATIONS.values())))
HAS_NODE = shutil.which("node") is not None and (NODE / "node_modules").is_dir()

PROGRAMS = [
    *(pytest.param("python", *way, marks=pytest.mark.skipif(not HAS_AGENTS, reason="`make agents` first"))
      for way in (("openinference", "grpc"), ("openinference", "http"), ("genai", "grpc"), ("genai", "http"))),
    *(pytest.param("node", "genai", way, marks=pytest.mark.skipif(not HAS_NODE, reason="`make agents` with npm"))
      for way in ("grpc", "proto", "json")),
]  # fmt: skip


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path, otlp_grpc="127.0.0.1:0", http="127.0.0.1:0") as running:
        yield running


@pytest.fixture(scope="module")
def model():
    with scripted_model() as url:
        yield url


@pytest.fixture
def start(daemon, model, language, convention, door):
    """Starts the program in a mode."""
    address = daemon.otlp if door == "grpc" else daemon.http
    python = [sys.executable, str(PYTHON_AGENT), convention, door, address, model]
    command = python if language == "python" else ["node", str(NODE / "agent.mjs"), door, address]

    def begin(mode: str) -> subprocess.Popen[str]:
        return subprocess.Popen([*command, mode], stdout=subprocess.PIPE, text=True)

    return begin


def ended(daemon: Daemon) -> dict:
    """The row of the only run, once it has ended."""
    until(lambda: [row for row in daemon.rows() if row["status"] != "running"], "the end")
    [row] = daemon.rows()
    return row


@pytest.mark.parametrize(("language", "convention", "door"), PROGRAMS)
def test_an_agent_is_one_run_as_a_person_would_draw_it(daemon, start, language):
    with start("ok") as program:
        assert program.wait(60) == 0
    row = ended(daemon)
    models = 2 if language == "python" else 1
    assert (row["status"], row["llm_calls"], row["tool_calls"], row["errors"]) == ("ok", models, 1, 0)
    steps = [(r["type"], r["name"]) for r in daemon.trace()]
    assert steps[:2] == [("run.start", None), ("agent.start", "analyst")]
    assert ("tool.call", "run_python") in steps
    answers = [r for r in daemon.trace() if r["type"] == "llm.response"]
    assert [r["payload"]["tokens_out"] for r in answers] == [12] * models
    assert daemon.cli("verify").returncode == 0


@pytest.mark.parametrize(("language", "convention", "door"), PROGRAMS)
def test_an_agent_killed_in_its_tool_has_crashed_there(daemon, start):
    with start("hang") as program:
        assert program.stdout.readline() == "in the tool\n"
        program.kill()
    row = ended(daemon)
    assert (row["status"], row["last_error"], row["llm_calls"]) == ("crashed", KILLED, 1)
    open_ = (daemon.run_dir() / "agent.logs").read_text().partition("without run.end")[2]
    assert KILLED in open_
    assert "(parent never arrived)" in open_
    assert daemon.cli("verify").returncode == 0
