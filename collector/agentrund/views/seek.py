"""Finding a seq in a file of numbered lines without reading what is before it.

Works on trace.jsonl and agent.logs alike: in both the numbers rise from line to line. It takes a
function that tells a line's seq and knows nothing else of the format.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

SeqOf = Callable[[bytes], int | None]
"""The seq of a line, None for a line without one (inside a frame, a banner, damage)."""

_CLOSE_ENOUGH: Final = 64 * 1024
"""Below this distance reading on costs less than another jump."""


def whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines from the file's position on; a torn last one is left out."""
    for line in file:
        if line.endswith(b"\n"):
            yield line


def near(file: BinaryIO, seq: int, seq_of: SeqOf) -> int:
    """The start of some line at or before that of ``seq``, found by halving."""
    low, high = 0, _size(file)
    while high - low > _CLOSE_ENOUGH:
        middle = (low + high) // 2
        start, found = _first_numbered(file, middle, high, seq_of)
        if found is not None and found <= seq:
            low = start
        else:
            high = middle
    return low


def last_seq(file: BinaryIO, seq_of: SeqOf) -> int:
    """The highest seq of a whole line; 0 where there is none."""
    end = _size(file)
    window = _CLOSE_ENOUGH
    while True:
        file.seek(max(0, end - window))
        if end > window:
            file.readline()
        seqs = [seq for line in whole_lines(file) if (seq := seq_of(line)) is not None]
        if seqs:
            return seqs[-1]
        if window >= end:
            return 0
        window *= 4


def _first_numbered(file: BinaryIO, start: int, end: int, seq_of: SeqOf) -> tuple[int, int | None]:
    """Start and seq of the first numbered line that begins after ``start`` and before ``end``."""
    file.seek(start)
    start += len(file.readline())
    while start < end:
        line = file.readline()
        found = seq_of(line)
        if found is not None:
            return start, found
        start += len(line)
    return start, None


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size
