"""Append files: never torn, never ahead of the disk, whatever a write does."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.model.errors import Unavailable
from agentrund.store import folder
from agentrund.store.append_file import AppendFile
from agentrund.store.folder import Folder
from agentrund.store.open_files import OpenFiles


def open_file(path, files=None) -> AppendFile:
    return AppendFile(lambda: Folder.root(path), "trace.jsonl", "run/trace.jsonl", files or OpenFiles())


def test_what_is_queued_is_written_with_one_commit(tmp_path):
    file = open_file(tmp_path)
    file.add(b"one\n")
    file.add(b"two\n")
    assert file.pending
    file.commit()
    assert (tmp_path / "trace.jsonl").read_bytes() == b"one\ntwo\n"
    assert (file.size, file.pending) == (8, False)


def failing_write(monkeypatch, short: int):
    """A disk that takes ``short`` bytes, then is full; returns how to free space."""
    state = {"full": True}
    real = os.write

    def write(fd, data):
        if not state["full"]:
            return real(fd, data)
        if short and not state.get("taken"):
            state["taken"] = True
            return real(fd, data[:short])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder.os, "write", write)
    return lambda: state.update(full=False)


@pytest.mark.parametrize("short", [0, 1, 5])
def test_a_full_disk_leaves_whole_lines_and_keeps_the_queue(tmp_path, monkeypatch, short):
    file = open_file(tmp_path)
    file.add(b"good\n")
    file.commit()
    free = failing_write(monkeypatch, short)
    file.add(b"second\n")
    with pytest.raises(Unavailable, match="No space left"):
        file.commit()
    assert (tmp_path / "trace.jsonl").read_bytes() == b"good\n"
    file.add(b"third\n")
    free()
    file.commit()
    assert (tmp_path / "trace.jsonl").read_bytes() == b"good\nsecond\nthird\n"


@given(
    st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"") + b"\n"), max_size=8),
    st.binary(max_size=200_000).map(lambda b: b.replace(b"\n", b"x")),
)
def test_a_torn_tail_goes_to_quarantine(tmp_path_factory, lines, torn):
    path = tmp_path_factory.mktemp("torn")
    (path / "trace.jsonl").write_bytes(b"".join(lines) + torn)
    kept: list[tuple[str, bytes]] = []
    file = open_file(path)
    assert file.repair_tail(lambda name, data: kept.append((name, data))) == len(torn)
    assert (path / "trace.jsonl").read_bytes() == b"".join(lines)
    assert kept == ([("trace.jsonl", torn)] if torn else [])
    file.add(b"next\n")
    file.commit()
    assert (path / "trace.jsonl").read_bytes() == b"".join(lines) + b"next\n"


def test_a_file_closed_by_the_lru_is_opened_again(tmp_path):
    files = OpenFiles(limit=1)
    first = open_file(tmp_path, files)
    second = AppendFile(lambda: Folder.root(tmp_path), "agent.logs", "run/agent.logs", files)
    for n in range(3):
        for file in (first, second):
            file.add(b"%d\n" % n)
            file.commit()
    assert len(files) == 1
    assert (tmp_path / "trace.jsonl").read_bytes() == (tmp_path / "agent.logs").read_bytes() == b"0\n1\n2\n"
