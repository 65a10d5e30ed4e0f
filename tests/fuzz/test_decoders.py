"""Whatever comes, a decoder gives values or one of the errors it is documented to raise."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrund.formats import index, intake_record, trace_jsonl
from agentrund.formats.agent_logs import LogRenderer
from agentrund.formats.derive import derive
from agentrund.model.errors import Damaged, Rejected, UsageError
from agentrund.model.otlp import Encoding, IntakeRecord, Peer, Signal
from agentrund.model.run_state import RunState
from agentrund.model.source import Arrival, Identity
from agentrund.receivers.decode import mapping, otlp
from agentrund.receivers.decode.jsonl import EventFrame, decode
from agentrund.receivers.decode.strict_json import clean_object, repair
from agentrund.sequencer.run import RunMachine
from agentrund.service import config
from support import mutate
from support.fuzz_seeds import frames, requests
from support.otlp_world import World
from support.run_folder import CRASHED, ENDED, RUN, RUNNING, records

FRAMES, REQUESTS = frames(), requests()
RECORDS = [record for facts in (CRASHED, ENDED, RUNNING) for record in records(RUN, facts)]

chances = st.integers(0, 2**64).map(Random)
thorough = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(chance=chances)
@thorough
def test_a_line_is_a_frame_or_refused(chance: Random):
    """What is taken becomes records that every reader can read."""
    machine = RunMachine(RunState(RUN), lambda _ts: "2026-08-30T14:22:33.000+00:00")
    seen = machine.arrive(Arrival("a", Identity(7, 8, "boot", 0)), 1.79e9)
    for _ in range(5):
        try:
            frame = decode(mutate.line(chance, chance.choice(FRAMES)))
        except Rejected as error:
            machine.refuse("a", error.code, error.message, error.n, 1.79e9)
            continue
        if isinstance(frame, EventFrame):
            seen += machine.feed("a", frame.event, 1.79e9)
    readable(step.record for step in seen)


def readable(made) -> None:
    """Records as lines, read again and derived from."""
    lines = [trace_jsonl.encode(record) for record in made]
    for line in lines:
        json.loads(line.decode("utf-8", "strict"), parse_constant=pytest.fail)
    state, renderer = RunState(RUN), LogRenderer()
    back = [trace_jsonl.decode(line) for line in lines]
    for record in back:
        renderer.render(record, state.apply(record), state).decode("utf-8", "strict")
    derive(back)


@given(chance=chances)
@thorough
def test_a_request_is_items_or_refused(chance: Random):
    """What is taken goes through the sequencer, too, and comes out as records."""
    world = World(run_key="auto", idle_s=1800.0)
    for _ in range(3):
        signal, request = chance.choice(REQUESTS)
        sent = mutate.body(chance, request)
        try:
            for _ in otlp.check(signal, Encoding.PROTOBUF, sent):
                pass
        except Rejected:
            with pytest.raises(Rejected):
                list(otlp.decode(signal, Encoding.PROTOBUF, sent))
            continue
        items = [item for item in otlp.decode(signal, Encoding.PROTOBUF, sent) if item is not None]
        world.take(*map(mapping.map_item, items))
    world.pass_time(10_000)
    world.shut_down()
    for run in world.all_runs:
        for record in run.records:
            trace_jsonl.decode(trace_jsonl.encode(record))


@given(chance=chances)
@thorough
def test_strict_json_is_strict(chance: Random):
    raw = mutate.line(chance, chance.choice(FRAMES))
    value = clean_object(raw)
    if value is not None:
        assert json.loads(raw) == value
    try:
        repair(raw)
    except ValueError:
        return


@given(chance=chances)
@thorough
def test_a_trace_line_is_a_record_or_damaged(chance: Random):
    line = mutate.in_bytes(chance, trace_jsonl.encode(chance.choice(RECORDS)))
    try:
        record = trace_jsonl.decode(line)
    except Damaged:
        return
    state = RunState(RUN)
    LogRenderer().render(record, state.apply(record), state)
    derive([record])


@given(chance=chances)
@thorough
def test_whatever_a_trace_says_it_can_be_derived_from(chance: Random):
    """Records in any order, with any content that a line can hold: an old product's, or another's."""
    made = []
    for record in RECORDS:
        value = json.loads(trace_jsonl.encode(record))
        line = mutate.as_line(mutate.in_value(chance, value) if chance.random() < 0.5 else value)
        try:
            made.append(trace_jsonl.decode(line))
        except Damaged:
            continue
    chance.shuffle(made)
    state, renderer = RunState(RUN), LogRenderer()
    for record in made:
        renderer.render(record, state.apply(record), state)
    derive(made)


@given(chance=chances)
@thorough
def test_a_row_is_a_row_or_damaged(chance: Random):
    row = derive(records(RUN, CRASHED)).row
    line = mutate.in_bytes(chance, index.encode_row(row, index.slot_size(row)))
    try:
        found = index.parse_line(line)
    except Damaged:
        return
    assert found is None or isinstance(found["run_id"], str)


SEGMENT = intake_record.MAGIC + b"".join(
    b"".join(
        intake_record.encode_request(IntakeRecord(n, 1.79e9, signal, Encoding.PROTOBUF, Peer(), b"body"))
    )
    + intake_record.encode_done(n)
    for n, signal in enumerate(Signal, 1)
)


@given(chance=chances)
@thorough
def test_a_journal_is_records_up_to_the_damage(chance: Random):
    try:
        for placed in intake_record.read(memoryview(mutate.in_bytes(chance, SEGMENT, mutate.WIRE)), "x"):
            assert isinstance(placed.record, (intake_record.Done, IntakeRecord))
    except Damaged:
        return


@given(chance=chances)
@thorough
def test_settings_are_settings_or_refused(chance: Random, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    good = "".join(f'{name} = "1"\n' for name in config.KINDS).encode()
    (folder / "agentrund.toml").write_bytes(
        mutate.in_bytes(chance, good, (*mutate.WORDS, b"[x]\n", b"= 1", b"2h"))
    )
    try:
        config.load(environ={"HOME": str(folder)}, system_file=folder / "agentrund.toml")
    except UsageError:
        return


@pytest.mark.parametrize(
    "values",
    [
        {key: value}
        for key in ("seq", "attempt", "parent_seq", "dur_ms")
        for value in (10**400, -(10**400), 2**60)
    ]
    + [{"ts": ts} for ts in (1e308, -1.0, 1e12)],
)
def test_a_number_nobody_can_reckon_with_is_damage(values):
    record = json.loads(trace_jsonl.encode(RECORDS[1]))
    with pytest.raises(Damaged):
        trace_jsonl.decode(mutate.as_line(record | values))


@pytest.mark.parametrize("value", [[], {}, 7, None, True, [{}]])
@pytest.mark.parametrize("key", ["id", "n", "k", "span", "lost_to", "half", "trace", "late"])
def test_where_a_record_came_from_may_be_anything(key, value):
    made = []
    for record in RECORDS[: len(CRASHED)]:
        line = json.loads(trace_jsonl.encode(record))
        made.append(
            trace_jsonl.decode(mutate.as_line(line | {"src": (line.get("src") or {}) | {key: value}}))
        )
    state, renderer = RunState(RUN), LogRenderer()
    for record in made:
        renderer.render(record, state.apply(record), state)
    derive(made)


@pytest.mark.parametrize(
    "text", ["root = " + "[" * 5000, "idle_close = " + "9" * 5000, "root = \udcff", "root ="]
)
def test_settings_that_cannot_be_read_name_their_file(tmp_path, text):
    path = tmp_path / "agentrund.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=r"agentrund\.toml: not valid TOML"):
        config.load(environ={"HOME": str(tmp_path)}, system_file=path)
