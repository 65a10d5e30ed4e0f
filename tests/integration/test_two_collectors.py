"""Two collectors, one root or one socket: exactly one serves, whoever else starts, and whatever is removed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading

import pytest

from support.daemon import Daemon
from support.raw_client import RawClient

STARTERS = 8


def serve(daemon: Daemon, *options: str, wrapper: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*wrapper, sys.executable, "-m", "agentrund.cli.main", "serve", "--otlp-grpc", "off", *options]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env=daemon.env, cwd=daemon.base, timeout=100
    )


@pytest.mark.parametrize("count", [STARTERS, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("same", ["root and socket", "root"])
def test_of_many_starters_exactly_one_serves(tmp_path, same, count):
    env = {**os.environ, "AGENTRUND_SPOOL": str(tmp_path / "spool")}
    barrier, ended = threading.Barrier(count), threading.Event()
    serving: list[subprocess.Popen[str]] = []
    refusals: list[str] = []

    def start(n: int) -> None:
        sock = tmp_path / "s" / ("agentrund.sock" if same == "root and socket" else f"{n}.sock")
        command = [sys.executable, "-m", "agentrund.cli.main", "serve", "--otlp-grpc", "off"]
        command += ["--root", str(tmp_path / "root"), "--socket", str(sock)]
        barrier.wait()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=tmp_path
        ) as process:
            if "recording" in process.stdout.readline():
                serving.append(process)
                ended.wait(100)
                with RawClient(sock) as client:
                    assert client.hello("a")["op"] == "welcome"
                process.terminate()
            else:
                refusals.append(process.stderr.read())

    threads = [threading.Thread(target=start, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            if len(refusals) == count - 1:
                ended.set()
            thread.join(0.1)
    assert len(serving) == 1
    assert len(refusals) == count - 1
    assert all("another collector" in text or "another program" in text for text in refusals), refusals
    assert serving[0].returncode == 0


@pytest.mark.parametrize("removed", ["lock file", "state folder"])
def test_a_root_whose_lock_was_removed_is_still_held(tmp_path, removed):
    with Daemon(tmp_path) as daemon:
        state = daemon.root / ".agentrund"
        (state / "lock").unlink() if removed == "lock file" else shutil.rmtree(state)
        done = serve(daemon, "--root", str(daemon.root), "--socket", str(tmp_path / "other.sock"))
        assert done.returncode == 4
        assert "is written by another collector" in done.stderr


def test_a_file_system_without_locks_is_refused_clearly(tmp_path):
    if shutil.which("strace") is None:
        pytest.skip("faults are injected with strace, which is not installed")
    wrapper = ("strace", "-f", "-o", "/dev/null", "-e", "trace=flock", "-e", "inject=flock:error=ENOLCK")
    with Daemon(tmp_path) as daemon:
        daemon.stop()
        done = serve(daemon, "--root", str(daemon.root), "--socket", str(daemon.socket), wrapper=wrapper)
    assert done.returncode == 4, done
    lines = done.stderr.splitlines()
    assert lines[0].startswith("agentrund: cannot lock ")
    assert "No locks available" in lines[0]
    assert lines[1].startswith("  hint: ")
    assert len(lines) == 2
