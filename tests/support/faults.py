"""System calls of a running collector that fail or take long, for as long as a block lasts (strace)."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def fault(pid: int, calls: str, how: str, *paths: Path) -> Iterator[None]:
    """``calls`` of ``pid`` (``write,pwrite64``) suffer ``how`` (``error=EIO:when=3+``).

    With ``paths`` only those on one of them, or on a name in one that is an open folder.
    """
    if shutil.which("strace") is None:
        pytest.skip("faults are injected with strace, which is not installed")
    only = [option for path in paths for option in ("-P", str(path))]
    command = ["strace", "-f", "-p", str(pid), "-o", "/dev/null", "-e", f"trace={calls}", *only]
    command += ["-e", f"inject={calls}:{how}"]
    strace = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = strace.stderr.readline()
        while line.startswith("strace: Requested path"):  # of a link: a remark
            line = strace.stderr.readline()
        if "attached" not in line:
            pytest.skip(f"strace cannot attach here: {line.strip()}")
        yield
    finally:
        strace.send_signal(signal.SIGTERM)
        strace.wait(20)
        strace.stderr.close()
