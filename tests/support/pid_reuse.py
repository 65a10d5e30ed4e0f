"""A pid that comes twice, played inside a pid namespace of its own: ``pid_reuse.py FOLDER DOOR WHEN``.

A sender of DOOR (``sock``, ``otlp``) is killed while the collector cannot look (WHEN: ``down`` it is killed
too, ``stopped`` it is stopped), and another process gets its pid. Prints what the collector makes of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from support.daemon import Daemon
from support.processes import Agent
from support.waiting import until

WORK = "client.hello('agent', session_id='s'); client.send({'n': 1, 'type': 'log'}); client.acked(1); ready()"
PROGRAM = Path(__file__).parent / "otel_program.py"


def heir_of(pid: int) -> subprocess.Popen[bytes]:
    """A process that has just this pid."""
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        process = subprocess.Popen(["sleep", "600"])
        if process.pid == pid:
            return process
        process.kill()
        process.wait()
    raise AssertionError(f"pid {pid} does not come again")


def otlp_sender(daemon: Daemon) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), daemon.otlp, "hang"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "flushed\n"
    process.stdout.close()
    return process


def sock_sender(daemon: Daemon) -> subprocess.Popen[str]:
    agent = Agent(daemon.socket, WORK)
    agent.wait_ready()
    return agent.process


def main() -> None:
    folder, door, when = sys.argv[1:4]
    with Daemon(Path(folder), otlp_grpc="127.0.0.1:0" if door == "otlp" else "off") as daemon:
        sender = otlp_sender(daemon) if door == "otlp" else sock_sender(daemon)
        if when == "down":
            daemon.kill()
        else:
            daemon.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, daemon.process.pid, os.WSTOPPED | os.WNOWAIT)
        sender.kill()
        sender.wait()
        heir = heir_of(sender.pid)
        if when == "down":
            daemon.start()
        else:
            daemon.process.send_signal(signal.SIGCONT)
        [row] = until(lambda: [row for row in daemon.rows() if row["status"] != "running"], "the verdict")
        told = {
            "status": row["status"],
            "cause": row["last_error"],
            "heir lives": heir.poll() is None,
            "verified": daemon.cli("verify").returncode == 0,
        }
        heir.kill()
        heir.wait()
        print(json.dumps(told))  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main()
