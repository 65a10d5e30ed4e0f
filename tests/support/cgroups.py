"""Cgroups of the test's own: one with little memory, or one that can be frozen. Version 1 or 2, whichever there is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.waiting import until

_TREE = Path("/sys/fs/cgroup")


def enter(*groups: Path) -> list[str]:
    """What is put before a command that is to run in them; its pid stays the one that was started."""
    moves = " && ".join(f"echo $$ > {group}/cgroup.procs" for group in groups)
    return ["sh", "-c", f'{moves} && exec "$@"', "sh"]


@contextmanager
def _made(controller: str, file: str) -> Iterator[Path]:
    """A cgroup in which ``file`` of version 1 or 2 is to be written."""
    for top in (_TREE / controller, _TREE):
        group = top / f"agentrund-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / file).exists() or (group / _V2[file]).exists():
                yield group
                return
        finally:
            _remove(group)
    pytest.skip(f"this machine does not let us make a {controller} cgroup")


def _remove(group: Path) -> None:
    until(lambda: not (group / "cgroup.procs").read_text(), "the end of what ran in it")
    group.rmdir()


_V2 = {"memory.limit_in_bytes": "memory.max", "freezer.state": "cgroup.freeze"}


@contextmanager
def with_memory(limit: int) -> Iterator[Path]:
    """A cgroup that may have ``limit`` bytes and no swap."""
    with _made("memory", "memory.limit_in_bytes") as group:
        give_memory(group, limit)
        yield group


def give_memory(group: Path, limit: int) -> None:
    """Change what a cgroup may have."""
    file = group / "memory.limit_in_bytes"
    (file if file.exists() else group / "memory.max").write_text(str(limit))


@contextmanager
def freezable() -> Iterator[Path]:
    """A cgroup for ``freeze``."""
    with _made("freezer", "freezer.state") as group:
        try:
            yield group
        finally:
            freeze(group, frozen=False)


def freeze(group: Path, *, frozen: bool) -> None:
    """Stop everything in a cgroup, or let it go on; returns when that is so."""
    state = group / "freezer.state"
    if state.exists():
        wanted = "FROZEN" if frozen else "THAWED"
        state.write_text(wanted)
        until(lambda: state.read_text().strip() == wanted, wanted)
        return
    (group / "cgroup.freeze").write_text("1" if frozen else "0")
    until(lambda: f"frozen {int(frozen)}" in (group / "cgroup.events").read_text(), "the freezer")
