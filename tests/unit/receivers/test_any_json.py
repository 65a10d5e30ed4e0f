"""Whatever object Python's json accepts comes out as strict JSON that means the same, in every file of a run."""

from __future__ import annotations

import json
import math
import re

from hypothesis import given
from hypothesis import strategies as st

from agentrund.formats import trace_jsonl
from agentrund.formats.agent_logs import LogRenderer
from agentrund.formats.derive import derive
from agentrund.formats.spill import spill
from agentrund.model.run_state import RunState
from agentrund.model.source import Arrival
from agentrund.receivers.decode.jsonl import EventFrame, decode
from agentrund.sequencer.run import RunMachine
from support.records import RUN, iso

any_text = st.text(st.characters(exclude_categories=()), max_size=12)
"""Lone surrogates too."""
telling = st.sampled_from(
    [
        "text",
        "text_ref",
        "ref",
        "preview",
        "bytes",
        "level",
        "message",
        "args",
        "error_type",
        "error",
        "cost_usd",
        "tokens_in",
        "tokens_out",
        "cached_tokens",
        "model",
        "messages",
        "stop_reason",
        "requested_tools",
        "name",
        "open",
        "cause",
        "source",
        "session_id",
        "lost",
        "dropped_x",
        "refused",
        "input",
        "output",
        "attributes",
        "status",
    ]
)
"""Keys that mean something to the formats."""
keys = any_text | telling
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**300, 10**320)
    | st.floats()
    | any_text
    | st.sampled_from(
        ["a\u2028b\u2029c\x85d\x0be\x0cf\rg", "\x00", "\x1b[2J", "#0001 x", "└─ #0001 end", "x" * 100]
    )
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=10,
)
payloads = st.dictionaries(keys, values, max_size=6)
types = st.sampled_from(
    [
        "log",
        "error",
        "agent.start",
        "agent.end",
        "llm.prompt",
        "llm.response",
        "llm.error",
        "tool.call",
        "tool.result",
        "tool.error",
        "state.update",
        "run.end",
        "what.ever",
    ]
)
_LONE = re.compile("[\ud800-\udfff]")


def expected(value):
    """The documented repairs, said once more."""
    if isinstance(value, str):
        return _LONE.sub("\ufffd", value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {expected(key): expected(item) for key, item in value.items()}
    return [expected(item) for item in value] if isinstance(value, list) else value


def strict(data: bytes):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    def once(pairs):
        assert len({key for key, _ in pairs}) == len(pairs), "a repeated key"
        return dict(pairs)

    value = json.loads(data.decode("utf-8"), parse_constant=refuse, object_pairs_hook=once)
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def line_of(payload, kind, *, ascii_only: bool, wide: bool) -> bytes:
    separators = (" , ", "\t:\r ") if wide else (",", ":")
    text = json.dumps(
        {"n": 1, "type": kind, "name": "a\u2028b", "span": "1", "payload": payload},
        ensure_ascii=ascii_only,
        separators=separators,
    )
    return text.encode("utf-8", "surrogatepass")


@given(payloads, types, st.booleans(), st.booleans())
def test_a_line_means_the_same_in_the_trace_as_it_did(payload, kind, ascii_only, wide):
    line = line_of(payload, kind, ascii_only=ascii_only, wide=wide)
    meant = expected(json.loads(line.decode("utf-8", "replace"))["payload"])
    frame = decode(line)
    assert isinstance(frame, EventFrame)
    assert frame.event.payload == meant
    state = RunState(RUN)
    machine = RunMachine(state, iso)
    renderer = LogRenderer()
    blobs: list[bytes] = []

    def put(data: bytes) -> str:
        blobs.append(data)
        return f"blobs/{len(blobs):08x}.txt"

    fitted = spill(frame.event.payload, 64, put)
    if fitted != frame.event.payload:
        frame.event.payload, frame.event.raw = fitted, None
    logs = b""
    records = []
    for step in (*machine.arrive(Arrival("s"), 1.79e9), *machine.feed("s", frame.event, 1.79e9)):
        written = trace_jsonl.encode(step.record)
        assert written.count(b"\n") == 1
        assert written.endswith(b"}\n")
        if step.record.seq > 1 and kind != "run.end":
            assert strict(written)["payload"] == fitted
        read = trace_jsonl.decode(written)
        assert read.payload == step.record.payload
        records.append(read)
        logs += renderer.render(step.record, step.change, state)
    assert re.findall(r"(?m)^#(\d+)", logs.decode()) == ["0001", "0002"]
    derived = derive(records)
    for document in (derived.analytics, derived.meta):
        strict(document)
    derived.outline.decode()


@given(st.data())
def test_repeated_keys_keep_their_last_value_and_are_counted(data):
    pairs = data.draw(st.lists(st.tuples(st.sampled_from("abc"), values), min_size=1, max_size=6))
    inner = ",".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in pairs)
    frame = decode(f'{{"n":1,"type":"log","payload":{{{inner}}}}}'.encode())
    assert isinstance(frame, EventFrame)
    assert frame.event.payload == expected(dict(pairs))
    extra = len(pairs) - len(dict(pairs))
    notes = (frame.event.src or {}).get("repairs", [])
    counts = [int(note.rpartition(" ")[2]) for note in notes if "repeated" in note]
    assert sum(counts) >= extra
    assert (extra > 0) <= bool(counts)
