"""Examples in the reference are what the writers write."""

from __future__ import annotations

import json
import re
from pathlib import Path

from agentrund.receivers.decode.jsonl import Hello, decode

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"

EXAMPLE = Path(__file__).parents[1] / "golden" / "example_root" / "latest"


def blocks(page, language=""):
    return re.findall(rf"^```{language}\n(.*?)^```", (REFERENCE / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_transcript():
    written = (EXAMPLE / "agent.logs").read_text()
    quoted = next(block for block in blocks("run-folder.md") if block.startswith("==== attempt 1"))
    parts = quoted.split("  …\n")
    places = [written.find(part) for part in parts]
    assert len(parts) > 1
    assert places[0] >= 0
    assert places == sorted(places)


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
