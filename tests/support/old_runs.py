"""A root with a history: many runs that ended long ago, written quickly. No collector involved."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from agentrund.formats import index, layout, navigate, trace_jsonl
from agentrund.formats.agent_logs import LogRenderer
from agentrund.formats.derive import derive
from agentrund.model.event import Record
from agentrund.model.ids import run_id_at
from agentrund.model.run_state import RunState

FIRST = 1_700_000_000
"""When the oldest run began, epoch seconds; the next ones follow a second apart."""
STEPS = 10
IDENTITY = {"pid": 4242, "pid_start": 1, "boot_id": "b", "uid": 0}
_TEMPLATE = run_id_at(FIRST, 0)


def write_old_runs(root: Path, count: int) -> list[str]:
    """Add ``count`` runs of two dozen records to ``root``; returns their ids, oldest first."""
    files, row = _files(), _row()
    (root / layout.RUNS).mkdir(parents=True, exist_ok=True)
    (root / layout.NAVIGATE).write_bytes(navigate.text())
    (root / layout.SESSIONS).mkdir(exist_ok=True)
    made = []
    with (root / layout.INDEX).open("ab") as rows:
        for number in range(count):
            run_id = run_id_at(FIRST + number, 0)
            _write(root / layout.run_dir(run_id), files, run_id.encode())
            rows.write(row.replace(_TEMPLATE.encode(), run_id.encode()))
            made.append(run_id)
    return made


def _write(folder: Path, files: dict[str, bytes], run_id: bytes) -> None:
    """One run; its trace is of long ago, what was derived from it a second younger."""
    os.makedirs(folder / layout.BLOBS, 0o700)
    for name, data in files.items():
        path = f"{folder}/{name}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, data.replace(_TEMPLATE.encode(), run_id))
        when = FIRST + (name != layout.TRACE)
        os.utime(fd, (when, when))
        os.close(fd)


def _records() -> Iterator[Record]:
    facts = [("run.start", None, {"session_id": None, "source": "old", **IDENTITY})]
    for number in range(STEPS):
        facts.append(("tool.call", "read_file", {"args": {"path": f"/data/{number}.csv"}}))
        facts.append(("tool.result", "read_file", {"text": "a,b,c"}))
    facts.append(("source.exit", None, {"source": "old", "cause": "run.end", "open": []}))
    facts.append(("run.end", None, {"cost_usd": None, "llm_calls": 0, "tool_calls": STEPS, "errors": 0}))
    for seq, (kind, name, payload) in enumerate(facts, start=1):
        closes = seq - 1 if kind == "tool.result" else None
        status = "ok" if kind in ("tool.result", "source.exit", "run.end") else None
        iso = datetime.fromtimestamp(FIRST + seq, UTC).isoformat(timespec="milliseconds")
        yield Record(
            _TEMPLATE, seq, 1, float(FIRST + seq), iso, kind, name, closes, status, None, payload, None
        )


def _files() -> dict[str, bytes]:
    records = list(_records())
    state, renderer, derived = RunState(_TEMPLATE), LogRenderer(), derive(records)
    return {
        layout.TRACE: b"".join(map(trace_jsonl.encode, records)),
        layout.LOGS: b"".join(renderer.render(r, state.apply(r), state) for r in records),
        layout.OUTLINE: derived.outline,
        layout.ANALYTICS: derived.analytics,
        layout.META: derived.meta,
    }


def _row() -> bytes:
    row = derive(_records()).row
    return index.encode_row(row, index.slot_size(row))
