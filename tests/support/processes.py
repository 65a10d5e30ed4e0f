"""Agent processes made of a few lines, to be killed at a known point."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

TESTS = Path(__file__).parent.parent

PRELUDE = """
import os, sys, time, signal, subprocess
from pathlib import Path
from typing import Self
from support.raw_client import RawClient
client = RawClient(Path(sys.argv[1]))
def ready(): print("ready", flush=True); sys.stdin.readline()
"""


class Agent:
    """A process that runs ``code`` after a prelude (``client``, ``ready()``), and waits at ``ready()``."""

    def __init__(
        self,
        socket: Path,
        code: str,
        *args: str,
        wrapper: list[str] | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        command = [*(wrapper or []), sys.executable, "-c", PRELUDE + code, str(socket), *args]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(TESTS), **(env or {})},
        )

    def wait_ready(self) -> None:
        line = self.process.stdout.readline()
        assert line == "ready\n", line

    def go_on(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> int:
        code = self.process.wait(30)
        self.process.stdin.close()
        self.process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.end()
