"""The table of runs: the rows of index.jsonl, newest first, or what the folders say where there is none.

The index is read while its collector may be rewriting a row in place, so a line that does not parse is
read once more before it counts as damage. Decides which rows match; knows nothing of how they look.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import BinaryIO, Final

from agentrund.formats import index, layout
from agentrund.formats.derive import derive
from agentrund.model.errors import Damaged, NoSuchRun
from agentrund.model.event import Json, Record
from agentrund.views import trace
from agentrund.views.folder import Root

_RUN_ID: Final = re.compile(rb'\s*\{\s*"run_id"\s*:\s*"([^"\\]+)"')


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows are wanted; None means any. ``since`` is epoch seconds, ``limit`` the newest so many."""

    status: str | None = None
    session: str | None = None
    since: float | None = None
    limit: int | None = None

    def wants(self, row: Json) -> bool:
        """Whether a row matches (the limit is not its affair)."""
        if self.status is not None and row.get("status") != self.status:
            return False
        if self.session is not None and row.get("session_id") != self.session:
            return False
        return self.since is None or _epoch(row.get("started_at")) >= self.since


@dataclass(slots=True)
class Listing:
    """Rows, and what could not be read while they were gathered."""

    rows: list[Json] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)


def list_runs(root: Root, wanted: Filter) -> Listing:
    """The runs of a root that match, newest first."""
    listing = Listing()
    try:
        file = root.open(layout.INDEX)
    except FileNotFoundError:
        _take(listing, (_row_from_folder(root, run_id, listing) for run_id in root.run_ids()), wanted)
        return listing
    with file:
        newest = _last_slots(file, listing)
        rows = (_row(file, newest[run_id], listing) for run_id in sorted(newest, reverse=True))
        _take(listing, rows, wanted)
    return listing


def _take(listing: Listing, rows: Iterable[Json | None], wanted: Filter) -> None:
    matching = (row for row in rows if row is not None and wanted.wants(row))
    listing.rows.extend(islice(matching, wanted.limit))


_Slot = tuple[int, bytes]


def _last_slots(file: BinaryIO, listing: Listing) -> dict[str, _Slot]:
    """Of each run its last slot, as offset and bytes. Only run ids are read here: rows can be a million."""
    found: dict[str, _Slot] = {}
    for offset, line in _slots(file):
        match = _RUN_ID.match(line)
        if match is not None:
            found[match[1].decode("utf-8", "replace")] = (offset, line)
        elif (row := _row(file, (offset, line), listing)) is not None:
            found[str(row.get("run_id"))] = (offset, line)
    return found


def _slots(file: BinaryIO) -> Iterator[_Slot]:
    offset = 0
    for line in file:
        if not line.endswith(b"\n"):
            return
        if not line.isspace():
            yield offset, line
        offset += len(line)


def _row(file: BinaryIO, slot: _Slot, listing: Listing) -> Json | None:
    offset, line = slot
    try:
        return index.parse_line(line, offset=offset)
    except Damaged:
        # This look may have met a rewrite halfway; the next one cannot meet the same one.
        again = os.pread(file.fileno(), len(line), offset)
    try:
        return index.parse_line(again, offset=offset)
    except Damaged as error:
        listing.damaged.append(error)
        return None


def _row_from_folder(root: Root, run_id: str, listing: Listing) -> Json | None:
    """The row of a run that no index lists; of a damaged trace what stands before the damage."""

    def readable() -> Iterator[Record]:
        try:
            yield from trace.records(root, run_id)
        except Damaged as error:
            listing.damaged.append(error)

    try:
        row = derive(readable()).row
    except NoSuchRun:
        return None
    return row | {"run_id": run_id}


def _epoch(iso: object) -> float:
    """Epoch seconds of an ISO time; a row without a readable one is older than everything."""
    try:
        return datetime.fromisoformat(str(iso)).timestamp()
    except ValueError:
        return float("-inf")
