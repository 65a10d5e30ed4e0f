"""Reading trace.jsonl: all of it in order, or the line of one seq."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from agentrund.formats import layout, trace_jsonl
from agentrund.model.errors import NoSuchRun
from agentrund.model.event import Record
from agentrund.views.folder import Root
from agentrund.views.seek import near, whole_lines

_SEQ: Final = re.compile(rb'\s*\{\s*"run_id"\s*:\s*"[^"]*"\s*,\s*"seq"\s*:\s*(\d+)\s*,')


def path_of(run_id: str) -> str:
    """The trace of a run, relative to its root."""
    return f"{layout.run_dir(run_id)}/{layout.TRACE}"


def open_trace(root: Root, run_id: str) -> BinaryIO:
    """The trace of a run. Raises NoSuchRun where the folder has none."""
    try:
        return root.open(path_of(run_id))
    except FileNotFoundError:
        raise NoSuchRun(
            f"run {run_id} has no {layout.TRACE}", hint="`agentrund runs` lists the runs"
        ) from None


def records(root: Root, run_id: str) -> Iterator[Record]:
    """Every record in order. Raises Damaged, with path and offset, at the first line that is none."""
    path = str(root.path / path_of(run_id))
    offset = 0
    with open_trace(root, run_id) as file:
        for line in whole_lines(file):
            yield trace_jsonl.decode(line, path=path, offset=offset)
            offset += len(line)


def find(root: Root, run_id: str, seq: int) -> Record:
    """One record. Raises NoSuchRun where the run has no such seq, Damaged where its line is no record."""
    with open_trace(root, run_id) as file:
        at = near(file, seq, seq_of)
        file.seek(at)
        for line in whole_lines(file):
            if seq_of(line) == seq:
                return trace_jsonl.decode(line, path=str(root.path / path_of(run_id)), offset=at)
            at += len(line)
    raise NoSuchRun(f"run {run_id} has no event #{seq:04d}", hint=f"`agentrund show {run_id}` lists them")


def changed_at(file: BinaryIO) -> int:
    """When a file's content last changed, in nanoseconds."""
    return os.fstat(file.fileno()).st_mtime_ns


def seek_after(file: BinaryIO, seq: int) -> None:
    """Move to the first line whose seq is greater than ``seq``."""
    at = near(file, seq, seq_of)
    file.seek(at)
    for line in whole_lines(file):
        found = seq_of(line)
        if found is not None and found > seq:
            break
        at += len(line)
    file.seek(at)


def seq_of(line: bytes) -> int | None:
    """The seq in the head of a line, None where it does not begin like a record."""
    match = _SEQ.match(line)
    return int(match[1]) if match else None
