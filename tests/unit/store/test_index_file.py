"""The index in place: the last row of a run wins, whatever its length came to be."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrund.formats import index
from agentrund.model.errors import Unavailable
from agentrund.store import index_file
from agentrund.store.folder import Folder
from agentrund.store.index_file import IndexFile

RUNS = [f"20260101_00000{n}_000{n}" for n in range(5)]


def row(run_id: str, status: str = "running", error: str | None = None) -> dict:
    return {
        **index.starting_row(run_id, "s", "2026-01-01T00:00:00.000+00:00", {}),
        "status": status,
        "last_error": error,
    }


def read(path) -> dict[str, dict]:
    """What a reader makes of the file: blanked slots skipped, the last row of a run wins."""
    rows = [json.loads(line) for line in (path / "index.jsonl").read_text().split("\n") if line.strip()]
    return {r["run_id"]: r for r in rows}


puts = st.lists(
    st.tuples(
        st.sampled_from(RUNS),
        st.sampled_from(["running", "ok", "crashed"]),
        st.none() | st.text(max_size=2000),
        st.booleans(),
    ),
    max_size=20,
)


@given(puts)
@settings(max_examples=60)
def test_the_last_row_of_a_run_is_what_was_put_last(tmp_path_factory, history):
    path = tmp_path_factory.mktemp("index")
    expected = {}
    with Folder.root(path) as folder:
        written = IndexFile(folder)
        for run_id, status, error, reopen in history:
            if reopen:
                written.close()
                written = IndexFile(folder)
            expected[run_id] = row(run_id, status, error)
            written.put(expected[run_id])
            assert read(path) == expected
        assert sorted(written.running()) == sorted(r for r, v in expected.items() if v["status"] == "running")
        written.close()


def test_a_row_is_rewritten_in_place(tmp_path):
    with Folder.root(tmp_path) as folder:
        written = IndexFile(folder)
        for run_id in RUNS:
            written.put(row(run_id))
        size = (tmp_path / "index.jsonl").stat().st_size
        written.put(row(RUNS[2], "crashed", "process exited: killed by SIGKILL"))
        assert (tmp_path / "index.jsonl").stat().st_size == size
        written.blank(RUNS[3])
        assert (tmp_path / "index.jsonl").stat().st_size == size
        assert list(read(tmp_path)) == [run_id for run_id in RUNS if run_id != RUNS[3]]
        written.close()


@pytest.mark.parametrize("cut", [1, 50, 200])
def test_a_row_torn_while_it_was_appended_is_cut_off(tmp_path, cut):
    with Folder.root(tmp_path) as folder:
        written = IndexFile(folder)
        for run_id in RUNS[:2]:
            written.put(row(run_id))
        written.close()
        data = (tmp_path / "index.jsonl").read_bytes()
        (tmp_path / "index.jsonl").write_bytes(data[:-cut])
        again = IndexFile(folder)
        assert again.running() == RUNS[:1]
        again.put(row(RUNS[2]))
        again.close()
    assert list(read(tmp_path)) == [RUNS[0], RUNS[2]]


def test_a_damaged_row_is_named_with_its_offset(tmp_path):
    with Folder.root(tmp_path) as folder:
        written = IndexFile(folder)
        written.put(row(RUNS[0]))
        offset = (tmp_path / "index.jsonl").stat().st_size
        written.put(row(RUNS[1]))
        written.close()
        data = bytearray((tmp_path / "index.jsonl").read_bytes())
        data[offset + 2 : offset + 9] = b"\x00" * 7
        (tmp_path / "index.jsonl").write_bytes(data)
        found = index_file.look(folder)
        assert (found.damage.offset, list(found.slots)) == (offset, RUNS[:1])


def test_rebuilding_replaces_the_file_whole(tmp_path):
    with Folder.root(tmp_path) as folder:
        (tmp_path / "index.jsonl").write_text("garbage\n")
        index_file.rebuild(folder, lambda: (row(run_id, "ok") for run_id in RUNS))
        assert list(read(tmp_path)) == RUNS
        assert sorted(p.name for p in tmp_path.iterdir()) == ["index.jsonl"]


def test_where_the_file_cannot_be_opened_again_no_other_file_is_written(tmp_path):
    with Folder.root(tmp_path) as folder:
        index = IndexFile(folder)
        index.put(row("20260101_000000_0001"))
        (tmp_path / "index.jsonl").unlink()
        (tmp_path / "index.jsonl").symlink_to(tmp_path / "elsewhere")
        for _ in range(2):
            with pytest.raises(Unavailable):
                index.put(row("20260101_000000_0002"))
            # It gets the number of whatever descriptor was given up last.
            others = [os.open(tmp_path / f"other{n}", os.O_RDWR | os.O_CREAT) for n in range(8)]
            for fd in others:
                os.ftruncate(fd, 1 << 16)
        for fd in others:
            assert os.pread(fd, 1 << 16, 0).strip(b"\0") == b""
        (tmp_path / "index.jsonl").unlink()
        index.put(row("20260101_000000_0002"))
        assert list(index_file.look(folder).slots) == ["20260101_000000_0002"]
        index.close()
