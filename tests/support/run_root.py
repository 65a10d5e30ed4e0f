"""A root written straight from records, as the collector leaves one behind. No collector involved."""

from __future__ import annotations

from hashlib import sha1

from agentrund.formats import index, layout, navigate, trace_jsonl
from agentrund.formats.agent_logs import LogRenderer
from agentrund.formats.derive import derive
from agentrund.formats.spill import spill
from agentrund.model.ids import link_name
from agentrund.model.run_state import RunState
from support.metric_points import histogram_line, metric_line
from support.records import Book


def blob_name(data):
    return f"blobs/{sha1(data, usedforsecurity=False).hexdigest()[:8]}.txt"


def write_run(root, book, *, finished=True, longest=8192):
    """One run's folder, row and links. Strings beyond ``longest`` are spilled as the collector does it."""
    folder = root / layout.run_dir(book.run_id)
    (folder / layout.BLOBS).mkdir(parents=True)

    def put(data):
        (folder / blob_name(data)).write_bytes(data)
        return blob_name(data)

    for record in book.records:
        record.payload = spill(record.payload, longest, put)
    state, renderer = RunState(book.run_id), LogRenderer()
    logs = b"".join(renderer.render(record, state.apply(record), state) for record in book.records)
    (folder / layout.TRACE).write_bytes(b"".join(map(trace_jsonl.encode, book.records)))
    (folder / layout.LOGS).write_bytes(logs)
    (folder / layout.METRICS).write_bytes(metric_line(book.run_id, n=1) + histogram_line(book.run_id))
    derived = derive(book.records)
    if finished:
        (folder / layout.OUTLINE).write_bytes(derived.outline)
        (folder / layout.ANALYTICS).write_bytes(derived.analytics)
        (folder / layout.META).write_bytes(derived.meta)
    row = derived.row if finished else index.running_row(state)
    with (root / layout.INDEX).open("ab") as file:
        file.write(index.encode_row(row, index.slot_size(row)))
    (root / layout.NAVIGATE).write_bytes(navigate.text())
    (root / layout.SESSIONS).mkdir(exist_ok=True)
    latest = root / layout.LATEST
    latest.unlink(missing_ok=True)
    latest.symlink_to(layout.run_dir(book.run_id))
    if state.session_id is not None:
        link = root / layout.SESSIONS / link_name(state.session_id)
        link.unlink(missing_ok=True)
        link.symlink_to(f"../{layout.run_dir(book.run_id)}")
    return folder


def small_book(run_id="20260830_142233_a1b2"):
    """A story of every kind of file, and no more."""
    book = Book(run_id)
    book.start(session_id="s", framework="f", task="t")
    step = book.add("tool.call", "t", {"args": {"code": "1/0 # " * 20}}, at=1)
    book.add(
        "tool.error", "t", {"error_type": "E", "error": "e"}, at=2, parent=step, status="error", dur_ms=9
    )
    book.end("failed", at=3, dur_ms=3000, cost_usd=None, llm_calls=0, tool_calls=1, errors=1)
    return book


def seed_book(run_id="20260830_142233_a1b2", session_id="sess_kaggle_eda_7c"):
    """The seed's story: two attempts, a crash between them, every kind of file."""
    book = Book(run_id)
    start = {"framework": "langgraph", "framework_version": "0.6.1", "model": "claude-sonnet-5"}
    book.start(session_id=session_id, task="explore the data", argv=["agent.py", "--api-key", "k"], **start)
    triage = book.add("agent.start", "triage", at=0.1)
    call = book.add("llm.prompt", "triage", {"messages": 2, "tokens_in": 400, "text": "[user]\nhi"}, at=0.2,
                    parent=triage)  # fmt: skip
    book.add("llm.response", "triage", {"stop_reason": "end_turn", "tokens_out": 386, "cost_usd": 0.0005,
             "text": '{"decision":\n "work"}'}, at=2.5, parent=call, dur_ms=2300)  # fmt: skip
    book.add("agent.end", "triage", {"cost_usd": 0.0005}, at=2.6, parent=triage, status="ok", dur_ms=2500)
    planner = book.add("agent.start", "planner", at=2.7)
    call = book.add("llm.prompt", "planner", {"messages": 4, "tokens_in": 69340, "model": "claude-sonnet-5",
                    "text": "[system]\nYou are the planner...\n" + "x\n" * 9000}, at=2.8, parent=planner)  # fmt: skip
    book.add("llm.response", "planner", {"stop_reason": "tool_use", "tokens_out": 900, "cost_usd": 0.02}, at=5,
             parent=call, dur_ms=2200)  # fmt: skip
    for number in range(5):
        step = book.add(
            "tool.call", "read_file", {"args": {"path": f"/data/{number}.csv"}}, at=6 + number, parent=planner
        )
        book.add(
            "tool.result", "read_file", {"text": "a,b"}, at=6.5 + number, parent=step, status="ok", dur_ms=500
        )
    step = book.add("tool.call", "run_python", {"args": {"code": "1/0"}}, at=11, parent=planner)
    book.add("tool.error", "run_python", {"error_type": "TimeoutError", "error": "exceeded 30s"}, at=41,
             parent=step, status="error", dur_ms=30000)  # fmt: skip
    step = book.add("tool.call", "run_python", {"args": {"code": "print(1)\n" * 2000}}, at=42, parent=planner)
    open_step = {"seq": step, "type": "tool.call", "name": "run_python", "age": 1.0}
    book.die("process exited: killed by SIGKILL", steps=[open_step], at=43)
    book.resume(at=509)
    book.add("log", None, {"level": "WARNING", "message": "3 events lost", "lost": 3}, at=510, status="WARNING",
             src={"k": "sock", "id": "a2", "lost_from": 1, "lost_to": 3})  # fmt: skip
    book.add("error", "executor", {"error_type": "RuntimeError", "error": "executor gave up after 2 attempts",
             "text": "Traceback:\n  boom"}, at=540)  # fmt: skip
    book.end("failed", at=542.62, dur_ms=76620, cost_usd=0.0205, llm_calls=2, tool_calls=7, errors=2)
    return book
