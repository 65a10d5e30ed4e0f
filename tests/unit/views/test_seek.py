"""Finding a seq in a large file reads little of it and never the wrong line."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.model.errors import Damaged, NoSuchRun
from agentrund.views import seek, tail, trace
from agentrund.views.folder import Root
from support.run_folder import RUN, write_run


class CountingFile:
    """A real file that counts what is read."""

    def __init__(self, file):
        self.file = file
        self.read_bytes = 0

    def __getattr__(self, name):
        return getattr(self.file, name)

    def readline(self):
        line = self.file.readline()
        self.read_bytes += len(line)
        return line

    def __iter__(self):
        for line in self.file:
            self.read_bytes += len(line)
            yield line


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """5,000 events; every payload holds what looks like the head of another record."""
    root = tmp_path_factory.mktemp("root")
    forged = {"run_id": RUN, "seq": 4711, "text": "short", "pad": "x" * 60}
    facts = [("run.start", None, {})] + [("log", None, {"seq": 17, "inner": forged})] * 4999
    write_run(root, facts, limit=8192)
    return Root(root)


@pytest.mark.parametrize("seq", [1, 2, 17, 2500, 4711, 4999, 5000])
def test_a_record_is_found(large, seq):
    assert trace.find(large, RUN, seq).seq == seq


@pytest.mark.parametrize("seq", [0, 5001, 10**9])
def test_a_seq_that_is_not_there(large, seq):
    with pytest.raises(NoSuchRun, match=f"#{seq:04d}"):
        trace.find(large, RUN, seq)


def test_little_is_read(large):
    path = large.path / trace.path_of(RUN)
    with path.open("rb") as opened:
        file = CountingFile(opened)
        at = seek.near(file, 4000, trace.seq_of)
        file.seek(at)
        assert trace.seq_of(file.readline()) <= 4000
    assert file.read_bytes < path.stat().st_size / 20


def test_last_seq_of_both_files(large):
    for name, seq_of in (("trace.jsonl", trace.seq_of), ("agent.logs", tail.anchor_of)):
        with (large.path / "runs" / RUN / name).open("rb") as file:
            assert seek.last_seq(file, seq_of) == 5000


def test_damage_in_the_middle_does_not_hide_what_is_around(tmp_path):
    folder = write_run(tmp_path, [("log", None, {"pad": "x" * 100})] * 2000, limit=8192)
    lines = (folder / "trace.jsonl").read_bytes().splitlines(keepends=True)
    lines[1000] = b"\0" * 20 + b"\n"
    (folder / "trace.jsonl").write_bytes(b"".join(lines))
    root = Root(tmp_path)
    for seq in (1, 1000, 1002, 2000):
        assert trace.find(root, RUN, seq).seq == seq
    with pytest.raises(NoSuchRun):
        trace.find(root, RUN, 1001)
    with pytest.raises(Damaged) as caught:
        list(trace.records(root, RUN))
    assert caught.value.offset == sum(map(len, lines[:1000]))


def test_torn_last_line_is_not_read(tmp_path):
    folder = write_run(tmp_path, [("log", None, {})] * 3)
    trace_file = folder / "trace.jsonl"
    trace_file.write_bytes(trace_file.read_bytes()[:-5])
    assert [r.seq for r in trace.records(Root(tmp_path), RUN)] == [1, 2]
    with pytest.raises(NoSuchRun):
        trace.find(Root(tmp_path), RUN, 3)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 300)), max_size=60), st.integers(0, 300))
def test_near_is_never_past_the_seq(tmp_path_factory, gaps, seq):
    lines, number = [], 0
    for gap, pad in gaps:
        number += gap
        lines.append(b"%d %b\n" % (number, b"x" * pad * 20))
    path = tmp_path_factory.getbasetemp() / "numbered"
    path.write_bytes(b"".join(lines))
    with path.open("rb") as file:
        at = seek.near(file, seq, lambda line: int(line.split()[0]) if line.strip() else None)
    starts = [sum(map(len, lines[:i])) for i in range(len(lines))]
    assert at in (starts or [0])
    before = [start for start, line in zip(starts, lines, strict=True) if int(line.split()[0]) <= seq]
    assert at == 0 or at <= max(before)


def test_whole_lines():
    assert list(seek.whole_lines(io.BytesIO(b"a\nb\ntorn"))) == [b"a\n", b"b\n"]
