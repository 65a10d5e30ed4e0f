"""Chance, which can be had again."""

from __future__ import annotations

import random
import sys

import pytest


@pytest.fixture
def chance():
    """Shown where the test fails: ``Random(seed)`` in its place sends the same again."""
    seed = random.randrange(1 << 32)
    yield random.Random(seed)
    sys.stderr.write(f"seed {seed}\n")
