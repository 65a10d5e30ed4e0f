"""Everything that reads a root or a run, one after the other: views, rebuilding, coming back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from agentrund.formats import layout
from agentrund.model.errors import AgentrundError
from agentrund.service import maintenance
from agentrund.store import index_file
from agentrund.store.index_file import IndexFile
from agentrund.store.root import Root as Store
from agentrund.views import show, trace
from agentrund.views.folder import Root
from agentrund.views.resolve import resolve
from agentrund.views.runs import Filter, list_runs
from agentrund.views.tail import Tail
from agentrund.views.verify import verify
from agentrund.views.whole import whole
from support.run_root import seed_book, small_book, write_run


def sound_files(base: Path) -> dict[str, bytes]:
    """The files of a root of two runs, by their names in it."""
    for run_id, session in (("20260830_142233_a1b2", "sess"), ("20260830_150000_0001", "other")):
        write_run(base, seed_book(run_id, session))
    return _files(base)


def small_files(base: Path) -> dict[str, bytes]:
    """Those of the smallest root that has every kind of file."""
    write_run(base, small_book("20260830_142233_a1b2"), longest=50)
    return _files(base)


def _files(base: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(base)): path.read_bytes()
        for path in sorted(base.rglob("*"))
        if path.is_file() and not path.is_symlink() and not path.parent.is_symlink()
    }


def write_root(base: Path, files: dict[str, bytes]) -> None:
    """A root of these files, in the place of what was there."""
    shutil.rmtree(base, ignore_errors=True)
    for name, data in files.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    newest = max((name.split("/")[1] for name in files if name.startswith("runs/")), default="none")
    (base / layout.LATEST).symlink_to(layout.run_dir(newest))


def _tail(root: Root, run_id: str, *, as_json: bool) -> None:
    with Tail(root, run_id, after=None, last=3, as_json=as_json) as tail:
        tail.read()
    with Tail(root, run_id, after=4, last=0, as_json=as_json) as tail:
        tail.read()


def _views(base: Path, run_id: str) -> list[Callable[[], object]]:
    root = Root(base)
    return [
        lambda: list(verify(root)),
        lambda: list_runs(root, Filter()),
        lambda: resolve(root, run_id[:12]),
        lambda: show.outline(root, run_id),
        lambda: show.summary(root, run_id, 1.79e9),
        lambda: list(show.texts(root, run_id)),
        lambda: list(show.jsonl(root, run_id, "full")),
        lambda: list(show.document(root, run_id, "preview")),
        lambda: show.event_text(show.event(root, run_id, 10, "full"), "full"),
        lambda: [whole(root, record) for record in trace.records(root, run_id)],
        lambda: _tail(root, run_id, as_json=True),
        lambda: _tail(root, run_id, as_json=False),
    ]


def _store(base: Path, run_id: str) -> list[Callable[[], object]]:
    def rebuild() -> None:
        store = Store.open(base, {"pid": 1})
        try:
            with closing(store.apart(run_id)) as files:
                files.sources()
                files.is_stale()
                maintenance.rebuild_run(files, lambda _name, _data: None)
        finally:
            store.close()

    def index() -> None:
        store = Store.open(base, {"pid": 1})
        try:
            file = IndexFile(store.folder)
            file.running()
            file.newest()
            file.close()
            index_file.look(store.folder)
            list(maintenance.rows(store, store.run_ids()))
        finally:
            store.close()

    return [index, rebuild]


def read_everything(base: Path, run_id: str) -> None:
    """Any error but ours, and what a missing file is, comes out."""
    for read in [*_views(base, run_id), *_store(base, run_id)]:
        with suppress(AgentrundError, FileNotFoundError):
            read()
