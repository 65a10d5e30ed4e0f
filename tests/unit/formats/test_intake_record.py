from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.formats import intake_record
from agentrund.formats.intake_record import MAGIC, Done
from agentrund.model.errors import Damaged
from agentrund.model.otlp import Encoding, IntakeRecord, Peer, Signal
from agentrund.model.source import Identity

PEERS = st.builds(
    Peer,
    host=st.none() | st.text(max_size=40),
    port=st.none() | st.integers(0, 65535),
    run_id=st.none() | st.text(max_size=40),
    identity=st.builds(
        Identity,
        pid=st.none() | st.integers(1, 1 << 22),
        pid_start=st.none() | st.integers(0, 1 << 40),
        boot_id=st.none() | st.text(max_size=36),
        uid=st.none() | st.integers(0, 1 << 32),
        pid_from=st.none() | st.just("client"),
    ),
)
REQUESTS = st.builds(
    IntakeRecord,
    rq=st.integers(0, (1 << 64) - 1),
    arrived_at=st.floats(0, 1e11),
    signal=st.sampled_from(Signal),
    encoding=st.sampled_from(Encoding),
    peer=PEERS,
    body=st.binary(max_size=300),
)
RECORDS = st.lists(REQUESTS | st.builds(Done, rq=st.integers(0, (1 << 64) - 1)), max_size=6)


def segment(records: list[IntakeRecord | Done]) -> bytes:
    return MAGIC + b"".join(
        intake_record.encode_done(r.rq) if isinstance(r, Done) else b"".join(intake_record.encode_request(r))
        for r in records
    )


@given(RECORDS)
def test_what_was_written_is_read_back(records):
    data = segment(records)
    placed = list(intake_record.read(memoryview(data), "x"))
    assert [p.record for p in placed] == records
    assert [p.offset for p in placed] == [len(MAGIC), *(p.end for p in placed)][: len(placed)]


@given(RECORDS, st.data())
def test_a_truncated_segment_gives_its_whole_records_and_the_offset_of_the_tear(records, data):
    whole = segment(records)
    ends = [p.end for p in intake_record.read(memoryview(whole), "x")]
    cut = data.draw(st.integers(len(MAGIC), len(whole)))
    read = []
    if cut in (len(MAGIC), *ends):
        read.extend(intake_record.read(memoryview(whole)[:cut], "seg"))
    else:
        with pytest.raises(Damaged) as caught:
            read.extend(intake_record.read(memoryview(whole)[:cut], "seg"))
        assert caught.value.path == "seg"
        assert caught.value.offset == max([len(MAGIC), *(e for e in ends if e <= cut)])
    assert [p.record for p in read] == records[: len(read)]


@given(RECORDS, st.data())
def test_a_flipped_byte_is_never_given_as_a_record(records, data):
    whole = bytearray(segment(records))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    read = []
    with pytest.raises(Damaged):
        read.extend(intake_record.read(memoryview(bytes(whole)), "x"))
    assert [p.record for p in read] == records[: len(read)]
