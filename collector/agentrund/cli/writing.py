"""What writing commands share: the root's collector does the work, or this process under the root's lock."""

from __future__ import annotations

import os
from pathlib import Path

from agentrund.cli import output
from agentrund.service import ask, config
from agentrund.service.access import Access


def have_done(root: Path, what: str, run_id: str | None) -> None:
    """Have ``rebuild`` (of one run) or ``reindex`` done by whoever may write in ``root``."""
    socket = ask.holder(root)
    with output.progress(what) as show:
        if socket is None:
            _do_here(root, run_id, show)
            return
        for frame in ask.do(socket, what, {} if run_id is None else {"run": run_id}):
            done, total = frame.get("done"), frame.get("total")
            if isinstance(done, int) and isinstance(total, int):
                show(done, total)


def _do_here(root: Path, run_id: str | None, show: output.Progress) -> None:
    from agentrund.service.maintenance import rebuild, reindex  # noqa: PLC0415 - the write side: most calls need none

    access = Access.of(config.load().group)
    os.umask(access.umask)
    if run_id is None:
        reindex(root, show, access.gid)
    else:
        rebuild(root, run_id, access.gid)
