"""Waiting for a fact on disk: bounded, and only where no message tells of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LIMIT_S = 20


def until(fact: Callable[[], T | None], what: str) -> T:
    """The first true value of ``fact``; fails after 20 s."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        value = fact()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f"never came: {what}")
