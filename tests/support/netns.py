"""Network namespaces of the test's own: one with nothing but loopback, or two that are connected."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

_numbers = itertools.count()


@dataclass(frozen=True)
class Namespace:
    """``enter`` goes before a command that is to run in it; ``address`` is what the other reaches it by."""

    name: str
    address: str

    @property
    def enter(self) -> list[str]:
        return ["ip", "netns", "exec", self.name]


def _ip(*args: str) -> None:
    done = subprocess.run(["ip", *args], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this machine does not let us make network namespaces: {done.stderr.strip()}")


@contextmanager
def connected_pair() -> Iterator[tuple[Namespace, Namespace]]:
    """Two namespaces with loopback and a cable between them, and no way to anywhere else."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and `ip`")
    number = next(_numbers)
    pair = [Namespace(f"art{os.getpid()}-{number}{end}", f"192.0.2.{n}") for n, end in ((1, "a"), (2, "b"))]
    made = []
    try:
        for space in pair:
            _ip("netns", "add", space.name)
            made.append(space)
            _ip("-n", space.name, "link", "set", "lo", "up")
        one, two = pair
        _ip("-n", one.name, "link", "add", "e0", "type", "veth", "peer", "name", "e0", "netns", two.name)
        for space in pair:
            _ip("-n", space.name, "address", "add", f"{space.address}/30", "dev", "e0")
            _ip("-n", space.name, "link", "set", "e0", "up")
        yield one, two
    finally:
        for space in made:
            subprocess.run(["ip", "netns", "del", space.name], check=True)
