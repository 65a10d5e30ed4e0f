"""What `hello` says about this process beside what the caller gave: argv, cwd, interpreter, git."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# A short sha as `git log --oneline` shows it.
_SHORT = 7
# HEAD and loose refs are one line; packed-refs of a huge repository is not worth reading at a run's start.
_MAX_REF_BYTES = 4 << 20


def process_metadata() -> dict[str, Any]:
    """The keys of `hello` that describe the process; argv is already masked."""
    from agentrund_client.redact import redact_argv  # noqa: PLC0415 - compiles its patterns when a run starts

    folder = _cwd()
    return {
        "argv": redact_argv([str(word) for word in getattr(sys, "argv", [])]),
        "cwd": folder,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "platform": sys.platform,
        "git": git_state(folder) if folder else None,
    }


def git_state(folder: str) -> dict[str, Any] | None:
    """`{sha, branch, dirty}` of the repository around `folder`, read from its files; None outside of one.

    `dirty` is null: only a run of git could tell, and the agent is not made to wait for one.
    """
    try:
        git_folder = _git_folder(folder)
        if git_folder is None:
            return None
        head = _read(git_folder, "HEAD")
        if not head.startswith("ref: "):
            return {"sha": head[:_SHORT] or None, "branch": None, "dirty": None}
        ref = head.removeprefix("ref: ")
        sha = _resolve(git_folder, ref)
        return {"sha": sha and sha[:_SHORT], "branch": ref.removeprefix("refs/heads/"), "dirty": None}
    except (OSError, ValueError):
        return None


def _git_folder(folder: str) -> str | None:
    while True:
        candidate = f"{folder}/.git"
        if os.path.isdir(candidate):  # noqa: PTH112
            return candidate
        if os.path.isfile(candidate):  # noqa: PTH113 - a worktree or submodule points elsewhere
            target = _read(folder, ".git").removeprefix("gitdir: ")
            return os.path.join(folder, target)  # noqa: PTH118
        parent = os.path.dirname(folder)  # noqa: PTH120
        if parent == folder:
            return None
        folder = parent


def _resolve(git_folder: str, ref: str) -> str | None:
    """The sha of a ref: a loose file, or a line of packed-refs; of the main repository for a worktree."""
    folders = [git_folder]
    if os.path.isfile(f"{git_folder}/commondir"):  # noqa: PTH113
        folders.append(os.path.join(git_folder, _read(git_folder, "commondir")))  # noqa: PTH118
    for folder in folders:
        if os.path.isfile(f"{folder}/{ref}"):  # noqa: PTH113
            return _read(folder, ref)
    packed = _read(folders[-1], "packed-refs") if os.path.isfile(f"{folders[-1]}/packed-refs") else ""  # noqa: PTH113
    for line in packed.splitlines():
        sha, _, name = line.partition(" ")
        if name == ref:
            return sha
    return None


def _read(folder: str, name: str) -> str:
    with open(f"{folder}/{name}", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return file.read(_MAX_REF_BYTES).strip()


def _cwd() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:  # the folder was removed
        return None
