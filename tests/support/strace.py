"""A running collector under strace: what it asks of the kernel in which order, or a kernel that says no."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.daemon import Daemon
from support.waiting import until

_LINE = re.compile(r"(?P<thread>\d+) +(?P<resumed><\.\.\. )?(?P<name>\w+)(?: resumed>|\()(?P<rest>.*)")
PATIENCE_S = 5
_CUT = " <unfinished ...>"


@dataclass
class Call:
    """A system call as strace tells it; ``began`` and ``returned`` are places in its log."""

    name: str
    text: str
    began: int
    returned: int


@contextmanager
def straced(daemon: Daemon, *options: str) -> Iterator[Path]:
    """Attach to all threads of a collector for as long as the block lasts; gives strace's log."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    log, said = daemon.base / "strace.log", daemon.base / "strace.stderr"
    command = ["strace", "-f", "-y", "-s", "4096", "-o", str(log), "-p", str(daemon.process.pid), *options]
    with said.open("w") as stderr, subprocess.Popen(command, stderr=stderr) as strace:
        try:
            until(lambda: "attached" in said.read_text() or strace.poll() is not None, "strace to attach")
            if strace.poll() is not None:
                pytest.skip(f"strace cannot attach here: {said.read_text()}")
            yield log
        finally:
            strace.terminate()
            try:
                strace.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                strace.kill()  # it waits for a call it delays, of a process that was killed


@contextmanager
def failing_disk(daemon: Daemon) -> Iterator[None]:
    """For as long as the block lasts no sync succeeds."""
    with straced(daemon, "-e", "inject=fdatasync,fsync,syncfs:error=EIO"):
        yield


def calls(log: Path) -> list[Call]:
    """The calls of a log in the order they began; those that strace saw no end of return at the end of it."""
    begun: dict[str, Call] = {}
    found: list[Call] = []
    lines = log.read_text(errors="replace").splitlines()
    for place, line in enumerate(lines):
        match = _LINE.match(line)
        if match is None:
            continue
        thread, rest = match["thread"], match["rest"]
        if match["resumed"]:
            call = begun.pop(thread, None)
            if call is not None:
                call.text += rest
                call.returned = place
                found.append(call)
            continue
        call = Call(match["name"], rest.removesuffix(_CUT), place, place)
        if rest.endswith(_CUT):
            call.returned = len(lines)
            begun[thread] = call
        else:
            found.append(call)
    # An answer is with its reader before strace has heard that the call is over, and may be told to leave.
    return sorted([*found, *begun.values()], key=lambda call: call.began)
