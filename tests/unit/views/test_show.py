"""Derived files where they are current, deriving where they are not; payloads put back as they were."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.formats.spill import spill
from agentrund.model.errors import Damaged, NoSuchRun
from agentrund.views import show
from agentrund.views.folder import Root
from agentrund.views.whole import whole
from support.run_folder import CRASHED, RUN, RUNNING, records, write_run


def test_a_current_outline_is_shown_as_it_is(tmp_path):
    folder = write_run(tmp_path, CRASHED)
    (folder / "outline.md").write_text("as written")
    assert show.outline(Root(tmp_path), RUN) == b"as written"


def test_an_outline_older_than_the_trace_is_made_anew(tmp_path):
    folder = write_run(tmp_path, RUNNING)
    (folder / "outline.md").write_text("of attempt 1")
    os.utime(folder / "outline.md", (1, 1))
    assert b"search" in show.outline(Root(tmp_path), RUN)


def test_a_run_without_a_trace(tmp_path):
    (tmp_path / "runs" / RUN).mkdir(parents=True)
    with pytest.raises(NoSuchRun):
        show.outline(Root(tmp_path), RUN)


def test_a_missing_blob_is_damage(tmp_path):
    folder = write_run(tmp_path, CRASHED)
    blob = next((folder / "blobs").iterdir())
    blob.unlink()
    with pytest.raises(Damaged) as caught:
        show.event(Root(tmp_path), RUN, 3, show.FULL)
    assert caught.value.path == str(blob)
    assert show.event(Root(tmp_path), RUN, 3, show.HIGH).payload["text_ref"] == f"blobs/{blob.name}"


FORGED = [
    "../../../secret",
    "/etc/passwd",
    "blobs/../../x",
    "blobs/link",
    "trace.jsonl",
    "blobs/0123456g.txt",
]


@pytest.mark.parametrize("ref", FORGED)
def test_a_forged_reference_is_only_text(tmp_path, ref):
    (tmp_path / "secret").write_text("secret")
    forged = {"text_ref": ref, "preview": "", "bytes": 1}
    payload = {**forged, "x": {"ref": ref, "preview": "", "bytes": 1}}
    write_run(tmp_path, [("log", None, payload)])
    assert show.event(Root(tmp_path), RUN, 1, show.FULL).payload == payload


def test_a_reference_to_a_planted_link_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("secret")
    folder = write_run(
        tmp_path, [("log", None, {"text_ref": "blobs/00000000.txt", "preview": "", "bytes": 1})]
    )
    (folder / "blobs" / "00000000.txt").symlink_to("../../../secret")
    with pytest.raises(Damaged):
        show.event(Root(tmp_path), RUN, 1, show.FULL)


def test_detail_of_an_event(tmp_path):
    write_run(tmp_path, CRASHED)
    root = Root(tmp_path)
    texts = [show.event_text(show.event(root, RUN, 3, d), d) for d in (show.LOW, show.HIGH, show.FULL)]
    assert [len(t) for t in texts] == sorted(len(t) for t in texts)
    assert "tokens_in" not in texts[0]
    assert "blobs/" in texts[1]
    assert texts[2].count("plan") == 41
    assert json.loads(show.event_json(show.event(root, RUN, 3, show.LOW)))["payload"] == {}


def test_the_document_is_one_and_whole(tmp_path):
    write_run(tmp_path, CRASHED)
    for detail in show.DETAILS:
        document = json.loads(b"".join(show.document(Root(tmp_path), RUN, detail)))
        assert document["analytics"]["run_id"] == RUN
        assert ("events" in document) == (detail != show.LOW)


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({"errors": [{}, {}], "errors_omitted": 5}, "7"),
        ({"errors": [{}], "errors_omitted": 0}, "1"),
        ({"errors": [{}]}, "1"),
        ({}, "-"),
    ],
)
def test_errors_beyond_the_list_count_in_the_summary(tmp_path, facts, shown):
    folder = write_run(tmp_path, CRASHED)
    (folder / "analytics.json").write_text(json.dumps(facts))
    assert f"errors      {shown}\n" in show.summary(Root(tmp_path), RUN, 0.0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["text", "args", "error", "x"]), JSON, max_size=4))
def test_what_was_spilled_comes_back(tmp_path_factory, payload):
    root = tmp_path_factory.mktemp("root")
    blobs = root / "runs" / RUN / "blobs"
    blobs.mkdir(parents=True)

    def put(data):
        name = f"{len(list(blobs.iterdir())):08x}.txt"
        (blobs / name).write_bytes(data)
        return f"blobs/{name}"

    [record] = records(RUN, [("log", None, spill(payload, 8, put))])
    found = whole(Root(root), record).payload
    assert found == payload
    assert list(found) == list(payload)
