"""agent.logs, compared piece by piece with what its trace renders to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, Self

from agentrund.formats import layout
from agentrund.formats.agent_logs import LogRenderer
from agentrund.model.errors import Damaged
from agentrund.model.event import Record
from agentrund.model.run_state import RunState
from agentrund.views.finding import Finding
from agentrund.views.folder import Root

REBUILD: Final = "`agentrund rebuild {run}` makes it again"


class Transcript:
    """Reads one agent.logs along with its trace. Says only where the two first part."""

    def __init__(self, root: Root, run_id: str) -> None:
        self._root = root
        self._relative = f"{layout.run_dir(run_id)}/{layout.LOGS}"
        self._path = str(root.path / self._relative)
        self._hint = REBUILD.format(run=run_id)
        self._renderer = LogRenderer()
        self._file: BinaryIO | None = None
        self._offset = 0
        self._agrees = True
        self._short: Finding | None = None
        """Where it ends too early: no damage while its run goes on."""

    def __enter__(self) -> Self:
        try:
            self._file = self._root.open(self._relative)
        except FileNotFoundError:
            self._agrees = False
            self._short = Finding(self._path, 0, "missing", self._hint)
        except Damaged:
            # The walk over the folder's entries has named it.
            self._agrees = False
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def feed(self, record: Record, change: str | None, state: RunState) -> Iterator[Finding]:
        """Compare what ``record`` adds (it has just been applied to ``state``)."""
        expected = self._renderer.render(record, change, state)
        if self._file is None or not self._agrees:
            return
        found = self._file.read(len(expected))
        if found == expected:
            self._offset += len(found)
            return
        self._agrees = False
        where = first_difference(found, expected)
        finding = Finding(self._path, self._offset + where, "not what the trace says", self._hint)
        if where == len(found):
            self._short = finding
        else:
            yield finding

    def end(self, *, may_lag: Callable[[], bool], may_grow: Callable[[], bool]) -> Iterator[Finding]:
        """What is missing or too much.

        ``may_lag`` tells whether it may be behind its trace, ``may_grow`` whether that has gone on meanwhile.
        """
        if self._short is not None and self._size() <= self._short.offset and not may_lag():
            yield self._short
        if self._agrees and self._file is not None and self._file.read(1) and not may_grow():
            yield Finding(self._path, self._offset, "more than the trace says", self._hint)

    def _size(self) -> int:
        """Its size by now: one that was short while its run went on may have been completed meanwhile."""
        try:
            return max(os.lstat(self._path).st_size, 0 if self._file is not None else 1)
        except FileNotFoundError:
            return 0


def first_difference(found: bytes, expected: bytes) -> int:
    """Offset of the first byte in which two contents differ."""
    low, high = 0, min(len(found), len(expected))
    while low < high:
        middle = (low + high + 1) // 2
        if found[low:middle] == expected[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
