"""A collector to be measured, and what it costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Server:
    """``agentrund serve`` on a temporary root, pinned to the first core where there are two."""

    def __init__(self, base: Path, sync: str = "interval", otlp: str = "off") -> None:
        self.root, self.socket = base / "root", base / "s.sock"
        command = [
            sys.executable,
            "-m",
            "agentrund.cli.main",
            "serve",
            "--root",
            str(self.root),
            "--socket",
            str(self.socket),
        ]
        self.process = subprocess.Popen(
            [*command, "--otlp-grpc", otlp, "--sync", sync],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "AGENTRUND_SPOOL": str(base / "spool")},
        )
        self.process.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.process.stdout.close()

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self.process.kill()
        self.process.wait(60)
        self.process.stdout.close()

    def cpu_s(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_bytes().rsplit(b")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def rss_mb(self) -> float:
        """Resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
