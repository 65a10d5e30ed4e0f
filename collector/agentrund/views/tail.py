"""Following a run: what was appended to agent.logs or trace.jsonl since the last look.

A look costs one stat. A torn last line is waited for; a file that was replaced (a rebuild) or cut (a
recovery) is opened again and read on after the last seq that was shown. Waiting is the caller's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import BinaryIO, Final, Self

from agentrund.formats import layout
from agentrund.views import trace
from agentrund.views.folder import Root
from agentrund.views.seek import SeqOf, last_seq, near, whole_lines

_ANCHOR: Final = re.compile(rb"#(\d{4,}) ")
_CHUNK: Final = 1 << 20
_FRAME_TOP: Final = "┌".encode()
_FRAME_END: Final = "└─ #".encode()


class Tail:
    """A reading position in one growing file of a run."""

    def __init__(self, root: Root, run_id: str, *, after: int | None, last: int, as_json: bool) -> None:
        """Start after seq ``after`` where given, else with the ``last`` newest events."""
        self._root = root
        self._path = f"{layout.run_dir(run_id)}/{layout.TRACE if as_json else layout.LOGS}"
        self._seq_of: SeqOf = trace.seq_of if as_json else anchor_of
        self._seek_after: Callable[[BinaryIO, int], None] = trace.seek_after if as_json else seek_after_block
        self._after = after
        self._last = last
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def read(self) -> bytes:
        """Whole lines that are new, at most about a megabyte of them; empty when there are none."""
        file = self._current()
        if file is None:
            return b""
        start = file.tell()
        data = file.read(_CHUNK)
        while len(data) and b"\n" not in data and (more := file.read(_CHUNK)):
            data += more
        data = data[: data.rfind(b"\n") + 1]
        file.seek(start + len(data))
        self._remember(data)
        return data

    @property
    def is_missing(self) -> bool:
        """Whether the file was not there at the last look."""
        return self._file is None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _current(self) -> BinaryIO | None:
        if self._file is not None and self._is_stale(self._file):
            self.close()
        if self._file is None:
            try:
                self._file = self._root.open(self._path)
            except FileNotFoundError:
                return None
            if self._after is None:
                self._after = max(0, last_seq(self._file, self._seq_of) - self._last)
            self._file.seek(0)
            if self._after:
                self._seek_after(self._file, self._after)
        return self._file

    def _is_stale(self, file: BinaryIO) -> bool:
        try:
            now = os.lstat(self._root.path / self._path)
        except FileNotFoundError:
            return False
        then = os.fstat(file.fileno())
        return (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino) or now.st_size < file.tell()

    def _remember(self, data: bytes) -> None:
        for line in reversed(data.splitlines(keepends=True)):
            seq = self._seq_of(line)
            if seq is not None:
                self._after = seq
                return


def anchor_of(line: bytes) -> int | None:
    """The seq of an event's line in agent.logs; no line inside a frame can look like one."""
    match = _ANCHOR.match(line)
    return int(match[1]) if match else None


def seek_after_block(file: BinaryIO, seq: int) -> None:
    """Move behind the event ``seq`` and its frame, so that a banner that follows is read next."""
    at = near(file, seq, anchor_of)
    file.seek(at)
    passed = framed = False
    lines = whole_lines(file)
    for line in lines:
        found = anchor_of(line)
        if found is not None:
            if found > seq:
                break
            passed = found == seq
        elif passed and not framed:
            if not line.startswith(_FRAME_TOP):
                break
            framed = True
        elif framed and line.startswith(_FRAME_END):
            # A blank line sets a frame off from what follows.
            at += len(line) + (next(lines, b"") == b"\n")
            break
        at += len(line)
    file.seek(at)
