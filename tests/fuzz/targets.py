"""What `make fuzz` calls with bytes: each target raises nothing but a bug. Imported with instrumentation."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

from google.protobuf.message import DecodeError

from agentrund.formats import index, intake_record, trace_jsonl
from agentrund.formats.agent_logs import LogRenderer
from agentrund.formats.derive import derive
from agentrund.model.errors import Damaged, Rejected
from agentrund.model.otlp import Encoding, IntakeRecord, Peer, Signal
from agentrund.model.run_state import RunState
from agentrund.receivers.decode import jsonl, mapping, otlp, strict_json
from support import mutate
from support.fuzz_seeds import frames, requests
from support.read_everything import read_everything, small_files, write_root
from support.run_folder import CRASHED, RUN, records

SIGNALS = list(Signal)
KINDS = {signal: type(message) for signal, message in requests()}


def stream_line(data: bytes) -> None:
    """A line of the stream protocol."""
    with suppress(Rejected):
        jsonl.decode(data)


def strict(data: bytes) -> None:
    """A payload."""
    value = strict_json.clean_object(data)
    with suppress(ValueError):
        repaired, _ = strict_json.repair(data)
        assert value is None or value == repaired
        strict_json.encode(repaired)


def otlp_request(data: bytes) -> None:
    """A request; its first byte picks the signal."""
    signal, body = SIGNALS[(data or b"\0")[0] % len(SIGNALS)], data[1:]
    with suppress(Rejected):
        for item in otlp.decode(signal, Encoding.PROTOBUF, body):
            if item is not None:
                mapping.map_item(item)


def intake_segment(data: bytes) -> None:
    """A segment of the intake journal."""
    with suppress(Damaged):
        list(intake_record.read(memoryview(data), "segment"))


def trace(data: bytes) -> None:
    """A trace: what can be read of it is folded, rendered and derived from."""
    state, renderer, made = RunState(RUN), LogRenderer(), []
    for line in data.splitlines(keepends=True):
        with suppress(Damaged):
            made.append(trace_jsonl.decode(line))
    for record in made:
        renderer.render(record, state.apply(record), state)
        trace_jsonl.encode(record)
    derive(made)


def index_row(data: bytes) -> None:
    """A line of the index."""
    with suppress(Damaged):
        index.parse_line(data)


class RootFiles:
    """A root in which one file holds the input; its first byte picks the file."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.files = small_files(Path(folder))
        self.names = sorted(self.files)
        self._folder = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self._base = Path(self._folder.name) / "root"

    def __call__(self, data: bytes) -> None:
        name = self.names[(data or b"\0")[0] % len(self.names)]
        write_root(self._base, self.files | {name: data[1:]})
        read_everything(self._base, "20260830_142233_a1b2")


def seeds() -> dict[str, list[bytes]]:
    """Right input for every target."""
    lines = [mutate.as_line(frame) for frame in frames()]
    story = [trace_jsonl.encode(record) for record in records(RUN, CRASHED)]
    row = derive(records(RUN, CRASHED)).row
    request = b"".join(
        intake_record.encode_request(
            IntakeRecord(1, 1.79e9, Signal.TRACES, Encoding.PROTOBUF, Peer(), b"body")
        )
    )
    root = RootFiles()
    return {
        "stream_line": lines,
        "strict_json": lines,
        "otlp_request": [
            bytes([SIGNALS.index(signal)]) + message.SerializeToString() for signal, message in requests()
        ],
        "intake_segment": [intake_record.MAGIC + request + intake_record.encode_done(1)],
        "trace": [b"".join(story), *story],
        "index_row": [index.encode_row(row, index.slot_size(row))],
        "root": [bytes([n]) + root.files[name] for n, name in enumerate(root.names)],
    }


def target(name: str) -> Callable[[bytes], None]:
    """A target by its name."""
    if name == "root":
        return RootFiles()
    return {
        "stream_line": stream_line,
        "strict_json": strict,
        "otlp_request": otlp_request,
        "intake_segment": intake_segment,
        "trace": trace,
        "index_row": index_row,
    }[name]


def structured(name: str, data: bytes, seed: int) -> bytes:
    """An input with a part of its meaning gone wrong; ``seed`` says which."""
    chance = Random(seed)
    if name == "intake_segment":
        return mutate.in_bytes(chance, data, mutate.WIRE)
    if name == "otlp_request":
        return data[:1] + _request(chance, data)
    if name == "root":
        return data[:1] + mutate.in_lines(chance, data[1:])
    return mutate.in_lines(chance, data)


def _request(chance: Random, data: bytes) -> bytes:
    kind = KINDS[SIGNALS[(data or b"\0")[0] % len(SIGNALS)]]
    try:
        return mutate.body(chance, kind.FromString(data[1:]))
    except DecodeError:
        return mutate.in_bytes(chance, data[1:], mutate.WIRE)
