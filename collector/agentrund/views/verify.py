"""``agentrund verify``: every invariant of the run folders, reading only, in constant memory.

Decides what is looked at and in which order; the ``check_*`` modules know the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from agentrund.formats import layout, navigate
from agentrund.model.errors import Damaged
from agentrund.model.ids import is_run_id
from agentrund.views.check_index import IndexRows, check_links
from agentrund.views.check_kinds import check_kinds
from agentrund.views.check_modes import check_root_modes
from agentrund.views.check_run import RunCheck, check_runs_folder
from agentrund.views.check_transcript import first_difference
from agentrund.views.finding import Finding
from agentrund.views.folder import Root

_NAVIGATE_HINT: Final = "the collector writes it again when it starts"

Progress = Callable[[int, int], None]
"""Told how many of how many runs have been looked at."""


def verify(
    root: Root, run_ids: Iterable[str] | None = None, progress: Progress | None = None
) -> Iterator[Finding]:
    """Every damage of the named runs, or (None) of the root and all its runs, oldest first."""
    with IndexRows(root) as rows:
        if run_ids is not None:
            # What is wrong with other runs' rows was not asked.
            for _ in rows.load():
                continue
            yield from _runs(root, list(run_ids), rows, progress)
            return
        yield from _navigate(root)
        yield from check_root_modes(root)
        yield from check_kinds(root)
        # Before the rows are read: a run has its row before it has its folder.
        try:
            found = [run_id for run_id in sorted(root.run_ids()) if is_run_id(run_id)]
        except Damaged as error:
            yield Finding.of(error)
            found = []
        yield from rows.load()
        yield from check_links(root, rows)
        yield from check_runs_folder(root)
        yield from _runs(root, found, rows, progress)
        yield from rows.unmatched(found)


def _runs(root: Root, run_ids: list[str], rows: IndexRows, progress: Progress | None) -> Iterator[Finding]:
    for done, run_id in enumerate(run_ids, start=1):
        yield from RunCheck(root, run_id, rows).findings()
        if progress is not None:
            progress(done, len(run_ids))


def _navigate(root: Root) -> Iterator[Finding]:
    path, expected = str(root.path / layout.NAVIGATE), navigate.text()
    try:
        found = root.read(layout.NAVIGATE)
    except FileNotFoundError:
        yield Finding(path, 0, "missing", _NAVIGATE_HINT)
    except Damaged as error:
        yield Finding.of(error)
    else:
        if found != expected:
            where = first_difference(found, expected)
            yield Finding(path, where, "not this version's text", _NAVIGATE_HINT)
