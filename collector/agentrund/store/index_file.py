"""index.jsonl in place: one padded slot a run, rewritten with one write however many runs there are.

The row is appended, saying ``running``, before the run's folder is made, so the runs that were open at a
crash are the rows that still say so; no other state is needed to find them.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from agentrund.formats import index, layout
from agentrund.model.errors import Damaged
from agentrund.model.event import Json
from agentrund.store.folder import Folder, write_all

Slot = tuple[int, int]
"""Offset and length in bytes, newline included."""

log: Final = logging.getLogger(__name__)

_READ: Final = 1 << 20
_RUNNING: Final = b'"status":"running"'
_TAIL: Final = 1 << 20
_RUN_ID: Final = re.compile(rb'^\{"run_id":"([0-9a-f_]+)"', re.MULTILINE)


class IndexFile:
    """The index of a root. One process writes it: the holder of the root's lock."""

    def __init__(self, folder: Folder) -> None:
        """Open it, and cut off a row that was being appended when its writer was killed."""
        self._folder = folder
        self._fd = folder.open_file(layout.INDEX, os.O_RDWR | os.O_CREAT)
        self._end = os.fstat(self._fd).st_size
        self._slots: dict[str, Slot] = {}
        self._held: dict[str, Json | None] | None = None
        self.harmed = False
        """Rows may be missing: somebody has cut or removed the file under us."""
        self._cut_torn_tail()

    def _cut_torn_tail(self) -> None:
        """A row that was being appended at a kill: its run's folder had not been made yet."""
        if self._end and os.pread(self._fd, 1, self._end - 1) != b"\n":
            tail = os.pread(self._fd, min(self._end, 1 << 20), max(0, self._end - (1 << 20)))
            self._end -= len(tail) - (tail.rfind(b"\n") + 1)
            os.ftruncate(self._fd, self._end)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def running(self) -> list[str]:
        """Runs whose row says ``running``: a scan at memory speed. What cannot be read is for ``look``."""
        found = []
        for slot, line in self._lines_with(_RUNNING):
            with suppress(Damaged):
                row = index.parse_line(line)
                if row is not None and row.get("status") == "running":
                    run_id = str(row["run_id"])
                    self._slots[run_id] = slot
                    found.append(run_id)
        return found

    def newest(self) -> list[str]:
        """The last few thousand runs that have got a row, oldest first, at a cost that never grows."""
        start = max(0, self._end - _TAIL)
        return [match[1].decode() for match in _RUN_ID.finditer(os.pread(self._fd, self._end - start, start))]

    def hold(self) -> None:
        """The file is about to be made again elsewhere: remember what is put meanwhile, for ``swap``."""
        self._held = {}

    def swap(self) -> None:
        """Go on with the file that has taken the old one's place, and with what was put meanwhile."""
        held, self._held = self._held or {}, None
        self._open_again()
        for run_id, row in held.items():
            if row is None:
                self.blank(run_id)
            else:
                self.put(row)

    def add(self, row: Json) -> None:
        """Append the row of a run that has none yet: nobody looks for one among a million. Raises OSError."""
        if self._held is not None:
            self._held[str(row["run_id"])] = row
        self._look_for_harm()
        self._append(row)

    def put(self, row: Json) -> None:
        """Set a run's row: in its slot, or appended where it has none or has outgrown it. Raises OSError."""
        if self._held is not None:
            self._held[str(row["run_id"])] = row
        self._look_for_harm()
        run_id = str(row["run_id"])
        slot = self._slots.get(run_id) or self._find(run_id)
        if slot is not None:
            try:
                data = index.encode_row(row, slot[1])
            except ValueError:
                self._append(row)
                self._pwrite(b" " * (slot[1] - 1) + b"\n", slot[0])
                return
            self._pwrite(data, slot[0])
            self._slots[run_id] = slot
            return
        self._append(row)

    def blank(self, run_id: str) -> None:
        """Take a run's row out."""
        if self._held is not None:
            self._held[run_id] = None
        self._look_for_harm()
        slot = self._slots.pop(run_id, None) or self._find(run_id)
        if slot is not None:
            self._pwrite(b" " * (slot[1] - 1) + b"\n", slot[0])

    def forget(self, run_id: str) -> None:
        """A run has ended: its slot is looked up again if it is ever needed."""
        self._slots.pop(run_id, None)

    def _append(self, row: Json) -> None:
        size = index.slot_size(row)
        try:
            self._pwrite(index.encode_row(row, size), self._end)
        except OSError:
            os.ftruncate(self._fd, self._end)
            raise
        self._slots[str(row["run_id"])] = (self._end, size)
        self._end += size

    def _pwrite(self, data: bytes, offset: int) -> None:
        os.lseek(self._fd, offset, os.SEEK_SET)
        write_all(self._fd, data)

    def _find(self, run_id: str) -> Slot | None:
        """The last row of a run: a scan at memory speed, needed only when an old run is resumed."""
        last = None
        for slot, _line in self._lines_with(b'"run_id":"%b"' % run_id.encode()):
            last = slot
        return last

    def _lines_with(self, needle: bytes) -> Iterator[tuple[Slot, bytes]]:
        """Lines that hold ``needle``. Read, not mapped: a file that is cut under us must not kill us."""
        offset, rest = 0, b""
        while chunk := os.pread(self._fd, _READ, offset + len(rest)):
            data = rest + chunk
            end = data.rfind(b"\n") + 1
            at = data.find(needle, 0, end)
            while at >= 0:
                first, last = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at) + 1
                yield (offset + first, last - first), data[first:last]
                at = data.find(needle, last, end)
            offset, rest = offset + end, data[end:]

    def _look_for_harm(self) -> None:
        """Somebody has cut or removed the file: go on with what is there."""
        info = os.fstat(self._fd)
        if info.st_nlink and info.st_size >= self._end:
            return
        self._open_again()
        self.harmed = True
        log.warning("index.jsonl was cut or removed under us: it is made again from the traces")
        self._cut_torn_tail()

    def _open_again(self) -> None:
        # The new one first: where it cannot be had, the old descriptor must not become another file's.
        fd = self._folder.open_file(layout.INDEX, os.O_RDWR | os.O_CREAT)
        os.close(self._fd)
        self._fd = fd
        self._end = os.fstat(fd).st_size
        self._slots.clear()


@dataclass(slots=True)
class Contents:
    """What an index holds: the slot of each run's last row, and the first damage."""

    slots: dict[str, Slot] = field(default_factory=dict)
    damage: Damaged | None = None


def look(folder: Folder) -> Contents:
    """Read the whole index, in any thread. What its writer does meanwhile may look like damage."""
    found = Contents()
    offset = 0
    with open(folder.open_file(layout.INDEX, os.O_RDONLY), "rb", buffering=_READ) as file:  # noqa: PTH123
        for line in file:
            try:
                row = index.parse_line(line, path=layout.INDEX, offset=offset)
            except Damaged as error:
                found.damage = found.damage or error
            else:
                if row is not None:
                    found.slots[str(row["run_id"])] = (offset, len(line))
            offset += len(line)
    return found


def rebuild(folder: Folder, rows: Callable[[], Iterator[Json]]) -> None:
    """Write the whole index anew from ``rows``, then put it in the old one's place."""
    _write_anew(folder, (index.encode_row(row, index.slot_size(row)) for row in rows()))


def complete(folder: Folder, contents: Contents, missing: dict[str, bytes]) -> None:
    """Write the index anew from the slots that can be read and the encoded rows of ``missing`` runs."""

    def lines() -> Iterator[bytes]:
        with open(folder.open_file(layout.INDEX, os.O_RDONLY), "rb", buffering=0) as file:  # noqa: PTH123
            for run_id in sorted(contents.slots.keys() | missing.keys()):
                slot = contents.slots.get(run_id)
                yield missing[run_id] if slot is None else os.pread(file.fileno(), slot[1], slot[0])

    _write_anew(folder, lines())


def _write_anew(folder: Folder, lines: Iterable[bytes]) -> None:
    temporary = f".{layout.INDEX}.new"
    folder.remove(temporary)
    fd = folder.open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
        file.writelines(lines)
    folder.move_over(temporary, layout.INDEX)
