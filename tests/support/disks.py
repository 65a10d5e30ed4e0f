"""Disks that are small and may be filled."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(path: Path, options: str) -> Iterator[Path]:
    """A tmpfs at ``path`` (``size=512k``, ``nr_inodes=30``); the test is skipped where none can be mounted."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", path]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a disk of its own can be mounted by root only")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def fill(path: Path) -> Path:
    """Use up every byte; returns the file to remove."""
    ballast = path / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return ballast


def use_up_inodes(path: Path) -> list[Path]:
    """Use up every inode; returns the files to remove."""
    made: list[Path] = []
    try:
        while True:
            file = path / f"inode-{len(made)}"
            file.touch()
            made.append(file)
    except OSError:
        return made
