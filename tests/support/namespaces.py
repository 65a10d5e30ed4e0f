"""Pid namespaces: the only place where a pid can be made to come twice, and everybody can be pid 1."""

from __future__ import annotations

import subprocess
from functools import cache

import pytest

UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
"""What runs after this is pid 1 of a namespace of its own, and sees nobody else in /proc."""


@cache
def _why_not() -> str | None:
    probe = [*UNSHARE, "test", "-w", "/proc/sys/kernel/ns_last_pid"]
    try:
        refused = subprocess.run(probe, check=False, capture_output=True).returncode
    except FileNotFoundError:
        return "there is no unshare"
    return "this machine does not let us make pid namespaces" if refused else None


def need_pid_namespaces() -> None:
    """Skip the test where they cannot be had."""
    reason = _why_not()
    if reason is not None:
        pytest.skip(reason)
