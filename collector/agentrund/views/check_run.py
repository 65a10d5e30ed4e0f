"""Every invariant of one run folder, in one pass over its trace. Reads only.

The trace is judged line by line; the transcript and the derived files are made again from it and
compared byte by byte. Where the trace itself is damaged, only the trace is judged.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterator
from typing import BinaryIO, Final

from agentrund.formats import layout, metric_lines
from agentrund.formats.derive import Derived, Deriver
from agentrund.formats.index import Row
from agentrund.model.errors import Damaged
from agentrund.model.ids import is_run_id
from agentrund.model.run_state import RUNNING
from agentrund.views.check_blobs import BlobCheck
from agentrund.views.check_index import IndexRows
from agentrund.views.check_lifecycle import check_record
from agentrund.views.check_modes import check_mode, check_path
from agentrund.views.check_trace import LineCheck
from agentrund.views.check_transcript import REBUILD, Transcript, first_difference
from agentrund.views.finding import Finding
from agentrund.views.folder import Root
from agentrund.views.served import is_served

_TRACE_HINT: Final = "the trace is the only copy of this event; the lines around it can still be read"
_TORN_HINT: Final = "the next start of the collector moves torn bytes to quarantine"
_METRICS_HINT: Final = "no other file is made from it; `agentrund rebuild` cuts a torn line off"
_PLANTED: Final = "look who put it there"
_UNFINISHED: Final = "no collector is at work here; the next one to start completes the run"
_FOLDERS: Final = frozenset({layout.BLOBS, layout.ARTIFACTS})


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
            # A run has its row and its folder before its first record.
            if not self._is_being_written():
                yield Finding(
                    self._path(layout.TRACE), 0, "missing", "without its trace a run cannot be read"
                )
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
                    offset += len(line)
                    if os.fstat(trace.fileno()).st_size == offset and not self._is_being_written():
                        at = offset - len(line)
                        yield Finding(path, at, f"{len(line)} bytes of a torn last line", _TORN_HINT)
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
                yield from transcript.end(
                    may_lag=lambda: (
                        deriver.state.is_open or self._is_unfinished() or self._is_due(layout.LOGS)
                    ),
                    may_grow=lambda: bool(trace.read(1)),
                )
        return damaged, offset

    def _metrics(self) -> Iterator[Finding]:
        try:
            file = self._root.open(f"{self._folder}/{layout.METRICS}")
        except FileNotFoundError:
            return
        except Damaged as error:
            yield Finding.of(error)
            return
        path, offset = self._path(layout.METRICS), 0
        with file:
            for line in _whole(file):
                # Metrics come after the end of a run too.
                is_torn = not line.endswith(b"\n")
                if is_torn and is_served(self._root):
                    return
                if is_torn:
                    yield Finding(path, offset, f"{len(line)} bytes of a torn last line", _METRICS_HINT)
                elif wrong := metric_lines.problem(line, self._run_id):
                    yield Finding(path, offset, wrong, _METRICS_HINT)
                offset += len(line)

    # -- what is made from the trace ----------------------------------------------------------------

    def _row(self) -> tuple[int, Row] | None:
        return None if self._index is None else self._index.row(self._run_id)

    def _is_unfinished(self) -> bool:
        """Whether its row, which is written after all other files, still says running."""
        slot = self._row()
        return slot is not None and slot[1].get("status") == RUNNING

    def _is_being_written(self) -> bool:
        return self._is_unfinished() and is_served(self._root)

    def _is_due(self, name: str) -> bool:
        """Whether a collector is about to bring a file up to its trace, to which a late event has come."""
        try:
            made, trace = (os.lstat(self._path(n)).st_mtime_ns for n in (name, layout.TRACE))
        except OSError:
            return False
        return made <= trace and is_served(self._root)

    def _derived(self, deriver: Deriver) -> Iterator[Finding]:
        if deriver.state.is_open:
            return
        if self._is_unfinished():
            if not is_served(self._root):
                yield from self._row_finding("says running, but its trace has ended", _UNFINISHED)
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
            if found != expected and not self._is_due(name):
                where = first_difference(found, expected)
                yield Finding(self._path(name), where, "not what the trace says", self._hint)
        slot = self._row()
        if slot is not None and slot[1] != derived.row and not self._is_due(layout.META):
            keys = ", ".join(key for key, value in derived.row.items() if slot[1].get(key) != value)
            yield from self._row_finding(
                f"differs from its trace in {keys or 'its keys'}",
                "`agentrund reindex` builds the index again",
            )

    def _row_finding(self, what: str, hint: str) -> Iterator[Finding]:
        slot = self._row()
        if slot is not None:
            path = str(self._root.path / layout.INDEX)
            yield Finding(path, slot[0], f"the row of {self._run_id} {what}", hint)


def check_runs_folder(root: Root) -> Iterator[Finding]:
    """Whether nothing but runs' own folders lies where runs lie."""
    try:
        with root.folder(layout.RUNS) as runs, os.scandir(runs) as entries:
            found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except (FileNotFoundError, Damaged):
        return  # who asked for the runs has said so
    for name, is_folder in found:
        path = str(root.path / layout.run_dir(name))
        if not is_folder:
            yield Finding(path, 0, "not a folder", _PLANTED)
        elif not is_run_id(name):
            yield Finding(path, 0, "its name is no run id: nobody looks into it", _PLANTED)


def _whole(trace: BinaryIO) -> Iterator[bytes]:
    """The lines of a file that may be growing: a line met half written is read on once."""
    for line in trace:
        yield line if line.endswith(b"\n") else line + trace.readline()


def _files(derived: Derived) -> Iterator[tuple[str, bytes]]:
    yield layout.OUTLINE, derived.outline
    yield layout.ANALYTICS, derived.analytics
    yield layout.META, derived.meta
