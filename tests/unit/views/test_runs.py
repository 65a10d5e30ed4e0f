"""The table of runs: from the index while it is being rewritten, or from the folders."""

from __future__ import annotations

import json
import os

import pytest

from agentrund.views.folder import Root
from agentrund.views.runs import Filter, list_runs
from support.run_folder import CRASHED, ENDED, RUN, RUNNING, write_run

A, B, C = "20260830_142233_000a", "20260830_142234_000b", "20260831_000000_000c"


def row(run_id, **keys):
    return {
        "run_id": run_id,
        "session_id": None,
        "started_at": "2026-08-30T14:22:33.000+00:00",
        "status": "ok",
    } | keys


def slot(content, width=256):
    return (content if isinstance(content, bytes) else json.dumps(content).encode()).ljust(width - 1) + b"\n"


def index(tmp_path, *slots):
    (tmp_path / "index.jsonl").write_bytes(b"".join(slots))
    return Root(tmp_path)


def ids(listing):
    return [r["run_id"] for r in listing.rows]


def test_newest_first_last_row_wins_blanks_are_skipped(tmp_path):
    root = index(
        tmp_path, slot(row(A, status="running")), slot(row(B)), slot(b""), slot(row(C)), slot(row(A), 300)
    )
    listing = list_runs(root, Filter())
    assert ids(listing) == [C, B, A]
    assert listing.rows[2]["status"] == "ok"
    assert listing.damaged == []


def test_rows_of_the_reference_writer_are_read(tmp_path):
    root = index(tmp_path, json.dumps(row(A), indent=None, separators=(", ", ": ")).encode() + b"\n")
    assert ids(list_runs(root, Filter())) == [A]


def test_a_row_being_rewritten_is_read_again(tmp_path, monkeypatch):
    half = slot(json.dumps(row(B)).encode()[:40])
    root = index(tmp_path, slot(row(A)), half, slot(row(C)))
    looks = []

    def second_look(fd, size, offset):
        looks.append((size, offset))
        return slot(row(B))

    monkeypatch.setattr(os, "pread", second_look)
    listing = list_runs(root, Filter())
    assert ids(listing) == [C, B, A]
    assert looks == [(256, 256)]
    assert listing.damaged == []


@pytest.mark.parametrize("damage", [b"{", b"\0" * 10, b"[]", b'{"run_id":5}', b'{"run_id":"x"', b"\xff"])
def test_a_damaged_row_is_named_and_the_others_are_listed(tmp_path, damage):
    listing = list_runs(index(tmp_path, slot(row(A)), slot(damage), slot(row(C))), Filter())
    assert ids(listing) == [C, A]
    assert [d.offset for d in listing.damaged] == [256]


def test_a_torn_last_row_is_left_out(tmp_path):
    listing = list_runs(index(tmp_path, slot(row(A)), b'{"run_id":"2026'), Filter())
    assert (ids(listing), listing.damaged) == ([A], [])


def test_filters(tmp_path):
    root = index(
        tmp_path,
        slot(row(A, status="failed", session_id="s")),
        slot(row(B, session_id="s", started_at="2026-08-30T14:22:33+05:45")),
        slot(row(C, started_at=None)),
    )
    assert ids(list_runs(root, Filter(status="failed"))) == [A]
    assert ids(list_runs(root, Filter(session="s"))) == [B, A]
    assert ids(list_runs(root, Filter(session="s", limit=1))) == [B]
    assert ids(list_runs(root, Filter(limit=0))) == []
    # B started earlier than A: its clock is ahead of UTC.
    assert ids(list_runs(root, Filter(since=1788099753.0))) == [A]


def test_only_what_is_asked_for_is_read_to_the_end(tmp_path):
    root = index(tmp_path, slot(b'{"run_id":"20200101_000000_0000", damaged'), slot(row(C)))
    assert list_runs(root, Filter(limit=1)).damaged == []


def test_without_an_index_the_folders_tell(tmp_path):
    write_run(tmp_path, CRASHED)
    write_run(tmp_path, ENDED, B)
    write_run(tmp_path, RUNNING, C)
    (tmp_path / "runs" / A).mkdir()
    found = {r["run_id"]: r for r in list_runs(Root(tmp_path), Filter()).rows}
    assert {k: v["status"] for k, v in found.items()} == {C: "running", B: "ok", RUN: "crashed"}
    assert found[RUN]["session_id"] == "sess_eda"
    assert found[RUN]["cost_usd"] == 0.02


def test_without_an_index_a_damaged_trace_gives_what_is_before_the_damage(tmp_path):
    folder = write_run(tmp_path, CRASHED)
    trace = folder / "trace.jsonl"
    trace.write_bytes(b"".join(trace.read_bytes().splitlines(keepends=True)[:2]) + b"damage\n")
    listing = list_runs(Root(tmp_path), Filter())
    assert [(r["run_id"], r["status"]) for r in listing.rows] == [(RUN, "running")]
    assert [d.path for d in listing.damaged] == [str(trace)]


def test_an_empty_root(tmp_path):
    assert list_runs(Root(tmp_path), Filter()).rows == []
