"""Every invariant of one run folder, in one pass over its trace. Reads only.

The trace is judged line by line; the transcript and the derived files are made again from it and
compared byte by byte. Where the trace itself is damaged, only the trace is judged.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterator
from typing import BinaryIO, Final

import msgspec

from agentrund.formats import layout
from agentrund.formats.derive import Derived, Deriver
from agentrund.model.errors import Damaged
from agentrund.model.run_state import RUNNING
from agentrund.views.check_blobs import BlobCheck
from agentrund.views.check_index import IndexRows
from agentrund.views.check_lifecycle import check_record
from agentrund.views.check_modes import check_mode, check_path
from agentrund.views.check_trace import LineCheck
from agentrund.views.check_transcript import REBUILD, Transcript, first_difference
from agentrund.views.finding import Finding
from agentrund.views.folder import Root

_TRACE_HINT: Final = "the trace is the only copy of this event; the lines around it can still be read"
_TORN_HINT: Final = "the next start of the collector moves torn bytes to quarantine"
_PLANTED: Final = "look who put it there"
_FOLDERS: Final = frozenset({layout.BLOBS, layout.ARTIFACTS})
METRICS: Final = "metrics.jsonl"


class RunCheck:
    """Checks one run against its trace, and against its row where the root has an index."""

    def __init__(self, root: Root, run_id: str, index: IndexRows | None) -> None:
        self._root = root
        self._run_id = run_id
        self._index = index
        self._folder = layout.run_dir(run_id)
        self._hint = REBUILD.format(run=run_id)

    def findings(self) -> Iterator[Finding]:
        """Everything that is wrong, trace first."""
        yield from self._entries()
        try:
            trace = self._root.open(f"{self._folder}/{layout.TRACE}")
        except FileNotFoundError:
            yield Finding(self._path(layout.TRACE), 0, "missing", "without its trace a run cannot be read")
            return
        except Damaged as error:
            yield Finding.of(error)
            return
        with trace:
            deriver = Deriver(self._run_id)
            damaged, end = yield from self._trace(trace, deriver)
            if not damaged:
                wrong = list(self._derived(deriver))
                # A run that went on while it was read is judged by the next look, not by this one.
                if os.fstat(trace.fileno()).st_size == end:
                    yield from wrong
        yield from self._metrics()

    def _path(self, name: str) -> str:
        return str(self._root.path / self._folder / name)

    # -- what is in the folder ----------------------------------------------------------------------

    def _entries(self) -> Iterator[Finding]:
        yield from check_path(str(self._root.path / self._folder))
        for below in ("", layout.BLOBS):
            folder = f"{self._folder}/{below}".rstrip("/")
            try:
                with self._root.folder(folder) as at, os.scandir(at) as entries:
                    for entry in entries:
                        yield from self._entry(str(self._root.path / folder), entry, is_blob=bool(below))
            except FileNotFoundError:
                continue
            except Damaged as error:
                if not below:  # what is no folder has been named among the entries around it
                    yield Finding.of(error)

    def _entry(self, folder: str, entry: os.DirEntry[str], *, is_blob: bool) -> Iterator[Finding]:
        path, info = f"{folder}/{entry.name}", entry.stat(follow_symlinks=False)
        if not is_blob and entry.name in _FOLDERS:
            if not stat.S_ISDIR(info.st_mode):
                yield Finding(path, 0, "not a folder", _PLANTED)
        elif not stat.S_ISREG(info.st_mode):
            yield Finding(path, 0, "not a regular file", _PLANTED)
        elif info.st_nlink > 1:
            yield Finding(path, 0, f"has {info.st_nlink} names: it is also outside the run", _PLANTED)
        # What the agent lets others do with its artifacts is its own business.
        if is_blob or entry.name != layout.ARTIFACTS:
            yield from check_mode(path, info)

    # -- the trace, and the transcript beside it ----------------------------------------------------

    def _trace(self, trace: BinaryIO, deriver: Deriver) -> Generator[Finding, None, tuple[bool, int]]:
        """Judge every line; returns whether any is no record, and where the last one ended."""
        path = self._path(layout.TRACE)
        lines, blobs = LineCheck(self._run_id), BlobCheck(self._root, self._run_id)
        offset, damaged = 0, False
        with Transcript(self._root, self._run_id) as transcript:
            for line in _whole(trace):
                if not line.endswith(b"\n"):
                    yield Finding(path, offset, f"{len(line)} bytes of a torn last line", _TORN_HINT)
                    offset += len(line)
                    break
                record, wrong = lines.feed(line)
                if record is not None:
                    wrong += check_record(record, deriver.state)
                for message in wrong:
                    yield Finding(path, offset, message, _TRACE_HINT)
                offset += len(line)
                if record is None:
                    damaged = True
                    continue
                yield from blobs.feed(record)
                if not damaged:
                    yield from transcript.feed(record, deriver.feed(record), deriver.state)
            if not damaged:
                yield from transcript.end(is_open=deriver.state.is_open, may_grow=lambda: bool(trace.read(1)))
        return damaged, offset

    def _metrics(self) -> Iterator[Finding]:
        try:
            file = self._root.open(f"{self._folder}/{METRICS}")
        except FileNotFoundError:
            return
        except Damaged as error:
            yield Finding.of(error)
            return
        offset = 0
        with file:
            for line in file:
                if not _is_object(line):
                    yield Finding(self._path(METRICS), offset, "not a metric point", _TORN_HINT)
                offset += len(line)

    # -- what is made from the trace ----------------------------------------------------------------

    def _derived(self, deriver: Deriver) -> Iterator[Finding]:
        slot = None if self._index is None else self._index.row(self._run_id)
        offset, row = slot if slot is not None else (0, None)
        # A row that says running is rewritten after all other files: they may be missing or old.
        if deriver.state.is_open or (row is not None and row.get("status") == RUNNING):
            return
        derived = deriver.result()
        for name, expected in _files(derived):
            try:
                found = self._root.read(f"{self._folder}/{name}")
            except FileNotFoundError:
                yield Finding(self._path(name), 0, "missing", self._hint)
                continue
            except Damaged as error:
                yield Finding.of(error)
                continue
            if found != expected:
                where = first_difference(found, expected)
                yield Finding(self._path(name), where, "not what the trace says", self._hint)
        if row is not None and row != derived.row:
            keys = ", ".join(key for key, value in derived.row.items() if row.get(key) != value)
            yield Finding(
                str(self._root.path / layout.INDEX),
                offset,
                f"the row of {self._run_id} differs from its trace in {keys or 'its keys'}",
                "`agentrund reindex` builds the index again",
            )


def _whole(trace: BinaryIO) -> Iterator[bytes]:
    """The lines of a file that may be growing: a line met half written is read on once."""
    for line in trace:
        yield line if line.endswith(b"\n") else line + trace.readline()


def _files(derived: Derived) -> Iterator[tuple[str, bytes]]:
    yield layout.OUTLINE, derived.outline
    yield layout.ANALYTICS, derived.analytics
    yield layout.META, derived.meta


def _is_object(line: bytes) -> bool:
    if not line.endswith(b"\n"):
        return False
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
