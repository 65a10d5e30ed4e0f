"""Run folders as the collector leaves them, made with the format writers and no collector."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agentrund.formats import layout, trace_jsonl
from agentrund.formats.agent_logs import LogRenderer
from agentrund.formats.spill import spill
from agentrund.model.event import Record
from agentrund.model.ids import link_name
from agentrund.model.run_state import RunState

START = 1788097953.0
RUN = "20260830_142233_a1b2"
IDENTITY = {"source": "7f3c9a", "pid": 48211, "pid_start": 1, "boot_id": "b", "uid": 0}

Fact = tuple[str, str | None, dict[str, Any]]
"""Type, name and payload of a record."""

CRASHED: list[Fact] = [
    ("run.start", None, {"session_id": "sess_eda", **IDENTITY, "framework": "langgraph"}),
    ("agent.start", "planner", {}),
    ("llm.prompt", "planner", {"messages": 2, "tokens_in": 69340, "text": "plan\n" * 40}),
    ("llm.response", "planner", {"stop_reason": "end_turn", "tokens_out": 386, "cost_usd": 0.02}),
    ("tool.call", "run_python", {"args": {"code": "1/0"}}),
    ("source.exit", None, {
        "source": "7f3c9a", "cause": "process exited: killed by SIGKILL",
        "open": [{"seq": 5, "type": "tool.call", "name": "run_python", "age": 30.0}],
    }),
]  # fmt: skip

ENDED: list[Fact] = [
    ("run.start", None, {"session_id": None, **IDENTITY}),
    ("log", "main", {"level": "info", "message": "hello"}),
    ("source.exit", None, {"source": "7f3c9a", "cause": "run.end", "open": []}),
    ("run.end", None, {"cost_usd": None, "llm_calls": 0, "tool_calls": 0, "errors": 0}),
]

RUNNING: list[Fact] = [
    ("run.start", None, {"session_id": "sess_live", **IDENTITY}),
    ("tool.call", "search", {"args": {"q": "x"}}),
]


def records(run_id: str, facts: Iterable[Fact], *, attempt: int = 1, first: int = 1) -> list[Record]:
    """Records a second apart, numbered from ``first``."""
    made = []
    for seq, (kind, name, payload) in enumerate(facts, start=first):
        status = {"run.end": "ok", "log": "INFO"}.get(kind)
        if kind == "source.exit":
            status = "ok" if payload["cause"] in ("bye", "run.end") else "error"
        src = (
            None
            if kind.startswith(("run.", "source."))
            else {"k": "sock", "id": "7f3c9a", "n": seq, "span": "1"}
        )
        ts = START + seq
        iso = f"2026-08-30T14:22:{33 + seq % 20:02d}.000+00:00"
        made.append(Record(run_id, seq, attempt, ts, iso, kind, name, None, status, None, payload, src))
    return made


def write_run(root: Path, facts: Iterable[Fact], run_id: str = RUN, *, limit: int = 64) -> Path:
    """A run's blobs, trace and agent.logs, and the links to it; nothing derived."""
    folder = root / layout.run_dir(run_id)
    (folder / layout.BLOBS).mkdir(parents=True)

    def put(data: bytes) -> str:
        ref = f"{layout.BLOBS}/{hashlib.sha1(data).hexdigest()[:8]}.txt"
        (folder / ref).write_bytes(data)
        return ref

    renderer, state = LogRenderer(), RunState(run_id)
    trace, logs = bytearray(), bytearray()
    for record in records(run_id, facts):
        record.payload = spill(record.payload, limit, put)
        trace += trace_jsonl.encode(record)
        logs += renderer.render(record, state.apply(record), state)
    (folder / layout.TRACE).write_bytes(trace)
    (folder / layout.LOGS).write_bytes(logs)
    _link(root / layout.LATEST, layout.run_dir(run_id))
    if state.session_id is not None:
        (root / layout.SESSIONS).mkdir(exist_ok=True)
        _link(root / layout.SESSIONS / link_name(state.session_id), f"../{layout.run_dir(run_id)}")
    return folder


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)
