"""A real collector in a process of its own, on a folder of the test's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

START_S = 30
MAIN = os.environ.get("AGENTRUND_TEST_MAIN", "agentrund.cli.main")
"""What is started: with ``crash.mutant`` the collector with one of its guards switched off."""


class Daemon:
    """``agentrund serve`` on ``root``; ready when the constructor returns, gone when the block ends."""

    def __init__(
        self,
        base: Path,
        *,
        root: Path | None = None,
        env: dict[str, str] | None = None,
        wrapper: list[str] | None = None,
        ready: bool = True,
        flags: tuple[str, ...] = (),
        **settings: str,
    ) -> None:
        self.base = base
        self.wrapper = wrapper or []
        self.flags = flags
        self.root = root or base / "root"
        self.socket = base / "s" / "agentrund.sock"
        self.settings = {"otlp_grpc": "off", "http": "off", **settings}
        self.env = {**os.environ, "AGENTRUND_SPOOL": str(base / "spool"), "TZ": "UTC", **(env or {})}
        self.stderr = base / "stderr.txt"
        self.process: subprocess.Popen[str]
        self.start() if ready else self.launch()

    def start(self) -> None:
        """Start it (again); returns when it says it is recording, which is after recovery."""
        self.launch()
        line = self.process.stdout.readline()
        assert "recording" in line, f"{line!r}\n{self.stderr.read_text()}"

    @property
    def command(self) -> list[str]:
        """What is started."""
        command = [
            *self.wrapper,
            sys.executable,
            "-m",
            MAIN,
            "serve",
            "--root",
            str(self.root),
            "--socket",
            str(self.socket),
            *self.flags,
        ]
        for name, value in self.settings.items():
            command += [f"--{name.replace('_', '-')}", value]
        return command

    def launch(self) -> None:
        """Start it (again), and wait for nothing."""
        with self.stderr.open("a") as stderr:
            self.process = subprocess.Popen(
                self.command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=self.env, cwd=self.base
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            # A wrapper (`unshare`) passes no signal on but the last one.
            self.kill() if self.wrapper else self.stop()
        self.process.stdout.close()

    def stop(self) -> int:
        """SIGTERM, and wait."""
        self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self.process.kill()
        self._reap()

    def _reap(self) -> int:
        code = self.process.wait(START_S)
        self.process.stdout.close()
        return code

    @property
    def otlp(self) -> str:
        """The OTLP/gRPC address it found, from the discovery file."""
        return json.loads(self.socket.with_suffix(".json").read_text())["otlp_grpc"]

    @property
    def http(self) -> str:
        """The HTTP address it found."""
        return json.loads(self.socket.with_suffix(".json").read_text())["http"]

    # -- reading what it wrote --------------------------------------------------------------------

    def run_ids(self) -> list[str]:
        """Run folders, oldest first."""
        return sorted(p.name for p in (self.root / "runs").iterdir())

    def run_dir(self, run_id: str | None = None) -> Path:
        """A run's folder; the only run's without an id."""
        if run_id is None:
            [run_id] = self.run_ids()
        return self.root / "runs" / run_id

    def trace(self, run_id: str | None = None) -> list[dict[str, Any]]:
        """The records of a run; none where its row is there and its folder or first record is not.

        A line that is just being written is none yet.
        """
        if run_id is None and not self.run_ids():
            return []
        path = self.run_dir(run_id) / "trace.jsonl"
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the index."""
        lines = (self.root / "index.jsonl").read_text().split("\n")
        return [json.loads(line) for line in lines if line.strip()]

    def cli(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command on this root."""
        command = [sys.executable, "-m", "agentrund.cli.main", *args]
        env = {**self.env, "AGENTRUND_ROOT": str(self.root), "AGENTRUND_SOCKET": str(self.socket)}
        return subprocess.run(
            command, check=False, capture_output=True, text=True, env=env, cwd=self.base, timeout=60
        )
