"""A recorded program as it lives again: a process for each of its processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.otlp_captures import Request

SENDER = Path(__file__).with_name("sender.py")
END_S = 60


class Process:
    """A sender that does what it is told. It ends with ``end``, or is killed."""

    def __init__(self, door: str, address: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SENDER), door, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.pid = self._process.pid

    def send(self, request: Request) -> str:
        """Send a request and wait for its answer; returns why it was not taken, empty where it was."""
        order = {
            "conn": request.port,
            "signal": request.signal,
            "gzip": request.gzip,
            "size": len(request.body),
        }
        self._process.stdin.write(json.dumps(order).encode() + b"\n" + request.body)
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        return json.loads(line) if line else f"the sender ended with {self._process.wait(END_S)}"

    def end(self) -> None:
        """Let it end by itself."""
        self._process.stdin.close()
        self._reap()

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._process.kill()
        self._process.stdin.close()
        self._reap()

    def _reap(self) -> None:
        self._process.wait(END_S)
        self._process.stdout.close()
