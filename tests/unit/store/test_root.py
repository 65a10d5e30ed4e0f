"""The root: one writer, private links, safe session names."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.model.errors import Unavailable
from agentrund.model.ids import link_name
from agentrund.store.root import Root

RUN = "20260101_000000_0001"
HOSTILE = [
    "../x",
    "a/../../x",
    "/abs",
    "..",
    ".",
    "",
    "x" * 5000,
    "a\0b",
    "a\nb",
    "C:\\x",
    "con",
    "\u202ex",
    "аdmin",
    "latest",
    "-rf",
    "%2F",
    "a/b",
    "a%2Fb",
    "\ud800",
]


def test_a_second_writer_is_told_who_the_first_is(tmp_path):
    root = Root.open(tmp_path, {"pid": 4711})
    with pytest.raises(Unavailable, match="pid 4711"):
        Root.open(tmp_path, {"pid": 2})
    root.close()
    Root.open(tmp_path, {"pid": 2}).close()


@pytest.mark.parametrize("session", HOSTILE)
def test_a_hostile_session_id_stays_in_its_folder(tmp_path, session):
    root = Root.open(tmp_path / "root", {"pid": 1})
    root.new_run(RUN)
    root.point_latest(RUN)
    root.point_session(RUN, session)
    assert root.session_run(session) == RUN
    root.close()
    [link] = os.listdir(tmp_path / "root" / "sessions")
    assert os.readlink(tmp_path / "root" / "sessions" / link) == f"../runs/{RUN}"
    assert os.listdir(tmp_path) == ["root"]
    assert os.readlink(tmp_path / "root" / "latest") == f"runs/{RUN}"


def test_hostile_ids_stay_distinct():
    assert len({link_name(session) for session in HOSTILE}) == len(HOSTILE)


@given(st.text(), st.text())
def test_distinct_sessions_never_share_a_link(one, other):
    assert (link_name(one) == link_name(other)) == (one == other)


@given(st.text())
def test_a_link_name_is_one_safe_segment(session):
    name = link_name(session)
    assert 0 < len(name) <= 200
    assert not name.startswith((".", "-"))
    assert name.isascii()
    assert name.isprintable()
    assert "/" not in name


def test_a_session_link_to_somewhere_else_is_not_followed(tmp_path):
    root = Root.open(tmp_path / "root", {"pid": 1})
    (tmp_path / "elsewhere").mkdir()
    os.symlink("../../elsewhere", tmp_path / "root" / "sessions" / "s")
    assert root.session_run("s") is None
    root.close()


def test_a_dotted_root_is_ignored_by_git(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.pyc")
    for _ in range(2):
        Root.open(tmp_path / ".runs", {"pid": 1}).close()
    assert (tmp_path / ".gitignore").read_text() == "*.pyc\n\n# agentrund\n.runs/\n"


def test_cut_bytes_are_kept_apart(tmp_path):
    root = Root.open(tmp_path, {"pid": 1})
    root.quarantine(RUN, "trace.jsonl", b"one")
    root.quarantine(RUN, "trace.jsonl", b"two")
    root.close()
    kept = sorted((tmp_path / ".agentrund" / "quarantine").iterdir())
    assert [path.read_bytes() for path in kept] == [b"one", b"two"]


@pytest.mark.parametrize(("derived", "stale"), [(-1, True), (0, True), (1, False)])
def test_files_derived_in_the_very_tick_of_the_trace_may_be_stale(tmp_path, derived, stale):
    root = Root.open(tmp_path, {"pid": 1})
    files = root.new_run(RUN)
    files.trace.add(b"{}\n")
    files.trace.commit()
    files.write("analytics.json", b"{}")
    tick = int(files.trace.modified) + derived
    os.utime(tmp_path / "runs" / RUN / "trace.jsonl", (tick - derived, tick - derived))
    os.utime(tmp_path / "runs" / RUN / "analytics.json", (tick, tick))
    assert files.is_stale() is stale
    files.close()
    root.close()
