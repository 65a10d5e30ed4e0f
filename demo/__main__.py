"""``make demo``: start a collector, let agents work, kill one, resume it, and read what was written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from agentrund.service import discovery

HERE = Path(__file__).parent
PATIENCE_S = 60.0
RUNS = 5
TREE_FILES = ("outline.md", "agent.logs", "trace.jsonl", "analytics.json", "meta.json", "blobs")


def main() -> int:
    """Run the demo; returns 0 when `verify` finds nothing."""
    with tempfile.TemporaryDirectory(prefix="agentrund-demo-") as folder:
        return Demo(Path(folder)).play()


class Demo:
    """One collector on a temporary root, and the programs around it."""

    def __init__(self, base: Path) -> None:
        self.root = base / ".runs"
        self.socket = base / "agentrund.sock"
        self.log = base / "collector.log"
        self.env = {
            **os.environ,
            "AGENTRUND_ROOT": str(self.root),
            "AGENTRUND_SOCKET": str(self.socket),
            "AGENTRUND_OTLP_GRPC": "127.0.0.1:0",
            "AGENTRUND_HTTP": "off",
            "AGENTRUND_SPOOL": str(base / "spool"),
        }

    def play(self) -> int:
        """All acts, in order."""
        with self.log.open("w", encoding="utf-8") as stderr:
            collector = self.start("-m", "agentrund.cli.main", "serve", stdout=subprocess.PIPE, stderr=stderr)
        try:
            greeting = collector.stdout and collector.stdout.readline()
            if not greeting:
                print(self.log.read_text(encoding="utf-8"))
                return collector.wait()
            self.agents_at_work()
            self.show()
            say("The verdict", "agentrund verify")
            verdict = self.cli("verify")
            print("\nThe demo ends here, and its files are removed.")
            return verdict
        finally:
            collector.send_signal(signal.SIGTERM)
            collector.wait(PATIENCE_S)
            if collector.stdout:
                collector.stdout.close()

    def agents_at_work(self) -> None:
        """Three thin clients, an OpenTelemetry program and a plain line, all at once; one client dies."""
        found = discovery.read(self.socket)
        otel = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{found.otlp_grpc if found else ''}",
            "OTEL_EXPORTER_OTLP_INSECURE": "true",
        }
        say("Agents at work", "three thin clients, one OpenTelemetry program, one printed line, all at once")
        hanging = self.start("-m", "demo.agent", "night-shift", "tides", "hang", stdout=subprocess.PIPE)
        others = [
            self.start("-m", "demo.agent", "volcano-study", "volcanoes"),
            self.start("-m", "demo.agent", "glacier-study", "glaciers"),
            self.start("-m", "demo.otel_agent", env=otel),
            self.start("-m", "demo.one_line"),
        ]
        if hanging.stdout:
            hanging.stdout.readline()
            hanging.stdout.close()
        print(f"kill -9 {hanging.pid}, while it is inside run_python")
        hanging.kill()
        hanging.wait()
        self.wait_for(lambda: any("without run.end" in text for text in self.logs()), "the banner")
        print("its last step, on disk now, with nobody's help:\n")
        for text in self.logs():
            print(
                "".join(
                    line for line in text.splitlines(keepends=True) if line.startswith(("----", "     open"))
                ),
                end="",
            )
        say("Resumed", "the same session again: same folder, next attempt, the numbers go on")
        others.append(self.start("-m", "demo.agent", "night-shift", "tides"))
        for process in others:
            process.wait(PATIENCE_S)
        self.wait_for(self.all_ended, "the end of every run")

    def show(self) -> None:
        """What a person does next: list, look, read."""
        say("The runs", "agentrund runs")
        self.cli("runs")
        say("The killed and resumed one", "agentrund show night-shift")
        self.cli("show", "night-shift")
        say("Its folder", str((self.root / "sessions" / "night-shift").resolve()))
        for name in TREE_FILES:
            path = self.root / "sessions" / "night-shift" / name
            print(f"  {name:<16}{describe(path)}")
        say("Its banners in agent.logs", "rg '^(====|----) attempt|^     open:' agent.logs")
        for line in (
            (self.root / "sessions" / "night-shift" / "agent.logs").read_text(encoding="utf-8").splitlines()
        ):
            if line.startswith(("====", "----", "     open")):
                print(line)

    # -- helpers ----------------------------------------------------------------------------------

    def start(
        self,
        *args: str,
        env: dict[str, str] | None = None,
        stdout: int | None = None,
        stderr: TextIO | None = None,
    ) -> subprocess.Popen[str]:
        """Start a program of the demo."""
        return subprocess.Popen(  # noqa: S603 - our own programs
            [sys.executable, *args],
            env={**self.env, **(env or {})},
            cwd=HERE.parent,
            stdout=stdout,
            stderr=stderr,
            text=True,
        )

    def cli(self, *args: str) -> int:
        """Run an agentrund command, its output to the terminal."""
        sys.stdout.flush()
        command = self.start("-m", "agentrund.cli.main", *args)
        return command.wait(PATIENCE_S)

    def logs(self) -> list[str]:
        """Every transcript."""
        return [path.read_text(encoding="utf-8") for path in self.root.glob("runs/*/agent.logs")]

    def all_ended(self) -> bool:
        """Whether every run is in the index, and none is called running."""
        rows = [
            row for row in (self.root / "index.jsonl").read_text(encoding="utf-8").split("\n") if row.strip()
        ]
        return len(rows) == RUNS and not any('"status":"running"' in row for row in rows)

    @staticmethod
    def wait_for(fact: Callable[[], bool], what: str) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not fact():
            if time.monotonic() > deadline:
                sys.exit(f"never came: {what}")
            time.sleep(0.02)


def say(title: str, how: str) -> None:
    """A heading, and the command it stands for."""
    print(f"\n── {title} {'─' * max(2, 60 - len(title))}\n   {how}\n", flush=True)


def describe(path: Path) -> str:
    """What a file or folder holds, in a word."""
    if path.is_dir():
        return f"{len(list(path.iterdir()))} long payloads, in full"
    text = path.read_text(encoding="utf-8")
    return f"{len(text.splitlines())} lines, {path.stat().st_size} bytes"


if __name__ == "__main__":
    sys.exit(main())
