"""Examples in the reference are what the writers write."""

from __future__ import annotations

import json
import re
from pathlib import Path

from agentrund.receivers.decode.jsonl import Hello, decode
from support.run_folder import CRASHED, IDENTITY, write_run

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"

FACTS = [
    ("run.start", None, {"session_id": "sess_eda", **IDENTITY, "framework": "langgraph"}),
    ("agent.start", "triage", {}),
    ("llm.prompt", "triage", {"messages": 4, "tokens_in": 812, "text": "short"}),
    ("llm.response", "triage", {
        "stop_reason": "end_turn", "tokens_out": 386, "cost_usd": 0.0005,
        "text": '{"decision": "work",\n "why": "data is there"}',
    }),
    ("tool.call", "run_python", {"args": {"code": "1/0"}}),
    CRASHED[-1],
]  # fmt: skip


def blocks(page, language=""):
    return re.findall(rf"^```{language}\n(.*?)^```", (REFERENCE / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_transcript(tmp_path):
    written = (write_run(tmp_path, FACTS, limit=8192) / "agent.logs").read_text()
    assert written in blocks("run-folder.md")


def test_the_frames():
    hello, events = blocks("stream-protocol.md", "json")
    assert isinstance(decode(hello.replace("\n", "").encode()), Hello)
    for line in events.splitlines():
        decode(line.encode())


def test_every_frame_in_a_table_is_json():
    frames = re.findall(r"^\| `(\{.*\})` \|", (REFERENCE / "stream-protocol.md").read_text(), re.MULTILINE)
    assert len(frames) > 10
    for frame in frames:
        assert "op" in json.loads(frame.replace(",…", ""))
