"""What one event costs on its way through the pure stages, and what finding one in a large trace costs.

Medians of several rounds on this machine; compare two versions in alternating runs, not across machines.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agentrund.formats import layout, trace_jsonl
from agentrund.formats.agent_logs import LogRenderer
from agentrund.model.event import Record
from agentrund.model.run_state import RunState
from agentrund.receivers.decode.jsonl import decode
from agentrund.views import trace
from agentrund.views.folder import Root

ROUNDS = 7
EVENTS = 5_000
RUN = "20260830_142233_a1b2"
ISO = "2026-08-30T14:22:33.000+00:00"


def median_us(work: Callable[[], None], count: int) -> float:
    """Microseconds for one of ``count`` pieces of ``work``."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) / count * 1e6)
    return statistics.median(times)


def event_line(size: int) -> bytes:
    """A tool call whose line has about ``size`` bytes."""
    frame = {"n": 1, "type": "tool.result", "name": "read_file", "span": "9", "payload": {"text": ""}}
    frame["payload"]["text"] = "x" * (size - len(json.dumps(frame)))
    return json.dumps(frame).encode()


def record(seq: int, payload: dict, raw: bytes | None = None) -> Record:
    """One record of the run that is measured."""
    src = {"k": "sock", "id": "a", "n": seq, "span": "9"}
    return Record(RUN, seq, 1, 1e9 + seq, ISO, "tool.result", "read_file", 1, None, 3, payload, src, raw)


def stages(size: int) -> None:
    """Decode, fold, encode and render ``EVENTS`` events of ``size`` bytes."""
    line = event_line(size)
    event = decode(line).event
    records = [record(seq, event.payload, event.raw) for seq in range(1, EVENTS + 1)]

    def rendered() -> None:
        state, renderer = RunState(RUN), LogRenderer()
        for one in records:
            renderer.render(one, state.apply(one), state)

    costs = {
        "decode": median_us(lambda: [decode(line) for _ in records], EVENTS),
        "encode": median_us(lambda: [trace_jsonl.encode(one) for one in records], EVENTS),
        "fold and render": median_us(rendered, EVENTS),
    }
    print(f"{size:5} B  " + "   ".join(f"{name} {cost:.2f} us" for name, cost in costs.items()))


def finding() -> None:
    """One event in a trace of 100,000."""
    count = 100_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / layout.run_dir(RUN) / layout.TRACE
        path.parent.mkdir(parents=True)
        payload = {"text": "x" * 600}
        with path.open("wb") as file:
            file.writelines(trace_jsonl.encode(record(seq, payload)) for seq in range(1, count + 1))
        root = Root(Path(folder))
        found = median_us(lambda: trace.find(root, RUN, count * 2 // 3), 1)
        whole = median_us(path.read_bytes, 1)
        megabytes = path.stat().st_size / 1e6
    print(f"one event of {count} ({megabytes:.0f} MB): {found:.0f} us; reading the file: {whole:.0f} us")


if __name__ == "__main__":
    for bytes_of_a_line in (300, 1000):
        stages(bytes_of_a_line)
    finding()
