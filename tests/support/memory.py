"""What the kernel says of a process's memory."""

from __future__ import annotations

from pathlib import Path

MIB = 1 << 20


def _field(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


def resident(pid: int) -> int:
    """Bytes it has now."""
    return _field(pid, "VmRSS")


def peak(pid: int) -> int:
    """The most it ever had."""
    return _field(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    """Count the most from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
