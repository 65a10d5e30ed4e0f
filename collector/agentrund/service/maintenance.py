"""Making derived files and the index again from the traces, with or without a collector."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from agentrund.finalise.finaliser import finalise
from agentrund.formats import layout, meta
from agentrund.formats.agent_logs import LogRenderer
from agentrund.formats.derive import derive
from agentrund.formats.index import Row, running_row
from agentrund.model.errors import Damaged, Unavailable
from agentrund.model.event import Record
from agentrund.model.run_state import RunState
from agentrund.service.run_actor import rendered
from agentrund.store import index_file
from agentrund.store.append_file import Quarantine
from agentrund.store.index_file import IndexFile
from agentrund.store.root import Root
from agentrund.store.run_files import RunFiles

log: Final = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Told how many of how many runs are done."""


def rebuild(root: Path, run_id: str, gid: int | None = None) -> None:
    """Make a run's agent.logs, derived files and index row again; takes the root's lock.

    ``gid`` is the group that may read the root.

    Raises Unavailable where a collector holds the root, Damaged where the trace cannot be read.
    """
    store = Root.open(root, {"pid": os.getpid()}, gid)
    try:
        index = IndexFile(store.folder)
        with closing(store.apart(run_id)) as files:
            files.repair_metrics(partial(store.quarantine, run_id))
            index.put(rebuild_run(files, partial(store.quarantine, run_id)))
        index.close()
    finally:
        store.close()


def rebuild_run(files: RunFiles, quarantine: Quarantine) -> Row:
    """Make a run's files again; returns the row for the index. A run that is open keeps saying so."""
    files.repair(quarantine)
    state = RunState(files.run_id)
    for _ in files.settle_logs(rendered(files, state, LogRenderer())):
        pass
    if state.is_open:
        files.write(layout.META, meta.encode(state))
        return running_row(state)
    return finalise(files)


def reindex(root: Path, progress: Progress | None = None, gid: int | None = None) -> None:
    """Make index.jsonl again from the traces; takes the root's lock. ``gid`` as for ``rebuild``."""
    store = Root.open(root, {"pid": os.getpid()}, gid)
    try:
        rebuild_index(store, progress)
    finally:
        store.close()


def rebuild_index(store: Root, progress: Progress | None = None) -> None:
    """Write the index of an open root anew and put it in the old one's place."""
    index_file.rebuild(store.folder, lambda: rows(store, store.run_ids(), progress))


def rows(store: Root, run_ids: list[str], progress: Progress | None = None) -> Iterator[Row]:
    """The rows of runs, made from their traces. A damaged run has the row of what can be read of it."""
    for done, run_id in enumerate(run_ids, start=1):
        try:
            with closing(store.apart(run_id)) as files:
                row = derive(_readable(files.records(files.trace.whole_lines()))).row
            if row["run_id"]:
                yield row
        except (OSError, Unavailable) as error:
            log.warning("run %s has no row: %s", run_id, error)
        if progress is not None:
            progress(done, len(run_ids))


def _readable(records: Iterator[Record]) -> Iterator[Record]:
    """Records up to the first damage, which is said."""
    try:
        yield from records
    except Damaged as error:
        log.warning("%s (see `agentrund verify`)", error)
