from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap

import pytest

import agentrund_client
from agentrund_client import _environment, _guard, _process
from agentrund_client._context import set_place

from .fake_collector import WATCHDOG, FakeCollector

HERE = pathlib.Path(__file__).parent


@pytest.fixture
def place(monkeypatch):
    """A short private folder for socket and spool, and an environment that points there and nowhere else."""
    with tempfile.TemporaryDirectory(prefix="ar-") as folder:
        for variable in [
            name for name in os.environ if name.startswith("AGENTRUND_") and name != "AGENTRUND_DEBUG"
        ]:
            monkeypatch.delenv(variable)
        monkeypatch.setenv("AGENTRUND_SOCKET", f"{folder}/s.sock")
        monkeypatch.setenv("AGENTRUND_SPOOL", f"{folder}/spool")
        # What an artifact folder without a run would leave in the machine's temporary folder.
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield pathlib.Path(folder)


@pytest.fixture
def client(place):
    """The client in this process, fresh, and gone afterwards; it must not have hidden any fault of its own."""
    _guard._faults.clear()
    _guard._told.clear()
    yield agentrund_client
    _process.shut_down()
    for recorder in _process._recorders:
        recorder.source.link.leave(0)
    _process._recorders.clear()
    _process._main = None
    _process._crashed = False
    _environment.restore()
    set_place(None)
    assert agentrund_client.faults() == []


@pytest.fixture
def collector(place):
    fake = FakeCollector(f"{place}/s.sock").start()
    yield fake
    fake.stop()


@pytest.fixture
def agent_script(place):
    """Start a Python program that uses the client; killed after the test when it is still there."""
    started = []

    def start(code: str, **options) -> subprocess.Popen[str]:
        program = f"import agentrund_client as ar\n{textwrap.dedent(code)}"
        script = place / f"agent{len(started)}.py"
        script.write_text(program)
        process = subprocess.Popen(
            [sys.executable, "-W", "error", str(script), *options.pop("argv", [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def run_agent(agent_script):
    """Run such a program to its end and return (stdout, stderr); fails on an unexpected exit code."""

    def run(code: str, *, code_expected: int = 0, **options) -> tuple[str, str]:
        process = agent_script(code, **options)
        out, err = process.communicate(timeout=WATCHDOG)
        assert process.returncode == code_expected, err
        return out, err

    return run


class CollectorProcess:
    """The fake collector as a process of its own, for signals."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        self.journal = place / "journal.jsonl"
        self.process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        (self.place / "s.sock").unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "fake_collector.py"), str(self.place / "s.sock"), str(self.journal)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)  # it may run on for a moment

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def records(self) -> list[dict]:
        fake = FakeCollector("unused", str(self.journal))
        return fake.events


@pytest.fixture
def collector_process(place):
    process = CollectorProcess(place)
    yield process
    process.kill()
