"""Making derived files and the index again from the traces, with or without a collector."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from agentrund.finalise.finaliser import finalise
from agentrund.formats import layout, meta
from agentrund.formats.agent_logs import LogRenderer
from agentrund.formats.derive import derive
from agentrund.formats.index import Row, running_row
from agentrund.model.run_state import RunState
from agentrund.store import index_file
from agentrund.store.index_file import IndexFile
from agentrund.store.root import Root
from agentrund.store.run_files import RunFiles

Progress = Callable[[int, int], None]
"""Told how many of how many runs are done."""


def rebuild(root: Path, run_id: str) -> None:
    """Make a run's agent.logs, derived files and index row again; takes the root's lock.

    Raises Unavailable where a collector holds the root, Damaged where the trace cannot be read.
    """
    store = Root.open(root, {"pid": os.getpid()})
    try:
        index = IndexFile(store.folder)
        index.put(rebuild_run(store.run(run_id), lambda name, data: store.quarantine(run_id, name, data)))
        index.close()
    finally:
        store.close()


def rebuild_run(files: RunFiles, quarantine: Callable[[str, bytes], None]) -> Row:
    """Make a run's files again; returns the row for the index. A run that is open keeps saying so."""
    files.repair(quarantine)
    state = RunState(files.run_id)
    files.settle_logs(_render(files, state))
    if state.is_open:
        files.write(layout.META, meta.encode(state))
        return running_row(state)
    return finalise(files)


def _render(files: RunFiles, state: RunState) -> Iterator[bytes]:
    renderer = LogRenderer()
    for record in files.records():
        yield renderer.render(record, state.apply(record), state)


def reindex(root: Path, progress: Progress | None = None) -> None:
    """Make index.jsonl again from the traces; takes the root's lock."""
    store = Root.open(root, {"pid": os.getpid()})
    try:
        rebuild_index(store, progress)
    finally:
        store.close()


def rebuild_index(store: Root, progress: Progress | None = None) -> None:
    """Write the index of an open root from every run's trace; runs without a record get no row."""
    run_ids = store.run_ids()

    def rows() -> Iterator[Row]:
        for done, run_id in enumerate(run_ids, start=1):
            files = store.run(run_id)
            whole = files.trace.whole_lines()
            if whole:
                yield derive(files.records(whole)).row
            files.close()
            if progress is not None:
                progress(done, len(run_ids))

    index_file.rebuild(store.folder, rows)
