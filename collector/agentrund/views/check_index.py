"""index.jsonl and the links of a root: what they say, and whether it is there.

Memory: one offset a run. A line that cannot be read is read once more: its collector may have been
rewriting it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import BinaryIO, Final, Self

from agentrund.formats import index, layout
from agentrund.formats.index import Row
from agentrund.model.errors import Damaged
from agentrund.model.ids import is_run_id, link_name
from agentrund.views.finding import Finding
from agentrund.views.folder import Root

_REINDEX: Final = "`agentrund reindex` builds the index again"
_LINK: Final = "links are set again when a run starts or is resumed"
_PLANTED: Final = "look who put it there"


class IndexRows:
    """The rows of a root's index, each read when it is asked for."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._path = str(root.path / layout.INDEX)
        self._file: BinaryIO | None = None
        self._slots: dict[str, tuple[int, int]] = {}
        self._earlier: list[tuple[str, int, int]] = []
        self._without_run: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def load(self) -> Iterator[Finding]:
        """Read every line once; must be done before ``row`` is asked."""
        try:
            self._file = self._root.open(layout.INDEX)
        except FileNotFoundError:
            yield Finding(self._path, 0, "missing", _REINDEX)
            return
        except Damaged as error:
            yield Finding.of(error)
            return
        offset = 0
        for line in self._file:
            try:
                row = self._parse(line, offset)
            except Damaged as error:
                yield Finding.of(error)
            else:
                if row is not None:
                    yield from self._take(row, offset, len(line))
            offset += len(line)

    def _take(self, row: Row, offset: int, length: int) -> Iterator[Finding]:
        run_id = row["run_id"]
        if run_id in self._slots:
            self._earlier.append((run_id, *self._slots[run_id]))
        self._slots[run_id] = (offset, length)
        if tuple(row) != index.KEYS:
            yield Finding(self._path, offset, f"the keys of {run_id}'s row are not {index.KEYS}", _REINDEX)
        if not self._root.has_run(run_id):
            self._without_run.append(run_id)

    def _parse(self, line: bytes, offset: int) -> Row | None:
        try:
            return index.parse_line(line, path=self._path, offset=offset)
        except Damaged:
            if self._file is None:
                raise
            again = os.pread(self._file.fileno(), len(line), offset)
            return index.parse_line(again, path=self._path, offset=offset)

    def row(self, run_id: str) -> tuple[int, Row] | None:
        """Offset and content of a run's row as it is now, None where there is none that can be read."""
        slot = self._slots.get(run_id)
        if slot is None:
            return None
        row = self._read(run_id, *slot)
        return None if row is None else (slot[0], row)

    def _read(self, run_id: str, offset: int, length: int) -> Row | None:
        if self._file is None:
            return None
        try:
            row = index.parse_line(os.pread(self._file.fileno(), length, offset))
        except Damaged:
            return None
        return None if row is None or row["run_id"] != run_id else row

    def unmatched(self, run_ids: list[str]) -> Iterator[Finding]:
        """Runs (listed before the rows were read) without a row, rows without a run, runs with two.

        To be asked last: what its collector was just beginning or moving has come to an end by then.
        """
        for run_id in run_ids:
            if run_id not in self._slots and self._root.has_run(run_id):
                yield Finding(self._path, 0, f"no row for run {run_id}", _REINDEX)
        for run_id in self._without_run:
            found = self.row(run_id)
            if found is not None and not self._root.has_run(run_id):
                yield Finding(self._path, found[0], f"there is no run {run_id}", _REINDEX)
        for run_id, offset, length in self._earlier:
            last = self.row(run_id)
            if last is not None and self._read(run_id, offset, length) is not None:
                message = f"a row of {run_id}, which has a later one at {last[0]}"
                yield Finding(self._path, offset, message, _REINDEX)


def check_links(root: Root, rows: IndexRows) -> Iterator[Finding]:
    """``latest`` and the sessions' links: relative, each to a run that is there and of its session."""
    yield from _check_link(root, layout.LATEST, f"{layout.RUNS}/")
    try:
        with root.folder(layout.SESSIONS) as sessions:
            names = os.listdir(sessions)  # noqa: PTH208 - a descriptor, not a path
    except FileNotFoundError:
        return
    except Damaged as error:
        yield Finding.of(error)
        return
    for name in names:
        if name.startswith("."):
            continue  # being set; a link's own name never begins with a dot
        found = list(_check_link(root, f"{layout.SESSIONS}/{name}", f"../{layout.RUNS}/"))
        yield from found or _check_session(root, name, rows)


def _check_session(root: Root, name: str, rows: IndexRows) -> Iterator[Finding]:
    """Whether a session's link leads to a run of that session, as far as its row says."""
    run_id = root.link(f"{layout.SESSIONS}/{name}")
    found = None if run_id is None else rows.row(run_id)
    session = None if found is None else found[1].get("session_id")
    if isinstance(session, str) and link_name(session) != name:
        path = str(root.path / layout.SESSIONS / name)
        yield Finding(path, 0, f"points at {run_id}, whose session is {session!r}", _LINK)


def _check_link(root: Root, relative: str, before: str) -> Iterator[Finding]:
    path = root.path / relative
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISLNK(mode):
        yield Finding(str(path), 0, "not a link", _PLANTED)
        return
    target = os.readlink(path)  # noqa: PTH115 - the text of the link, not a path
    run_id = target.removeprefix(before)
    if target == run_id or not is_run_id(run_id):
        yield Finding(str(path), 0, f"points at {target!r}, not at {before}<run_id>", _LINK)
    elif not root.has_run(run_id):
        yield Finding(str(path), 0, f"points at {run_id}, which is not there", _LINK)
