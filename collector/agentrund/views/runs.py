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
from agentrund.views.seek import whole_lines

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


def _last_slots(file: BinaryIO, listing: Listing) -> dict[str, int]:
    """Of each run the offset of its last slot. Only run ids are read here: there can be a million rows."""
    found: dict[str, int] = {}
    offset = 0
    for line in whole_lines(file):
        match = _RUN_ID.match(line)
        if match is not None:
            found[match[1].decode("utf-8", "replace")] = offset
        elif not line.isspace() and (row := _parse(file, line, offset, listing)) is not None:
            found[str(row["run_id"])] = offset
        offset += len(line)
    return found


def _row(file: BinaryIO, offset: int, listing: Listing) -> Json | None:
    file.seek(offset)
    return _parse(file, file.readline(), offset, listing)


def _parse(file: BinaryIO, line: bytes, offset: int, listing: Listing) -> Json | None:
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
