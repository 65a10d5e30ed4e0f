"""What writing commands share: the root's collector does the work, or this process under the root's lock."""

from __future__ import annotations

from pathlib import Path

from agentrund.cli import output
from agentrund.service import ask


def have_done(root: Path, what: str, run_id: str | None) -> None:
    """Have ``rebuild`` (of one run) or ``reindex`` done by whoever may write in ``root``."""
    socket = ask.holder(root)
    if socket is None:
        _do_here(root, run_id)
        return
    with output.progress(what) as show:
        for frame in ask.do(socket, what, {} if run_id is None else {"run": run_id}):
            done, total = frame.get("done"), frame.get("total")
            if isinstance(done, int) and isinstance(total, int):
                show(done, total)


def _do_here(root: Path, run_id: str | None) -> None:
    from agentrund.service import maintenance  # noqa: PLC0415 - the write side, which most calls do not need

    if run_id is None:
        maintenance.reindex(root)
    else:
        maintenance.rebuild(root, run_id)
