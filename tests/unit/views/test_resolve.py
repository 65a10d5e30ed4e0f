"""What a person may type for a run or an event."""

from __future__ import annotations

import pytest

from agentrund.model.errors import NoSuchRun, UsageError
from agentrund.views.folder import Root
from agentrund.views.resolve import Target, parse_anchor, resolve
from support.run_folder import CRASHED, ENDED, RUN, write_run

OTHER = "20260830_142234_0001"


@pytest.fixture
def root(tmp_path):
    write_run(tmp_path, CRASHED)
    write_run(tmp_path, ENDED, OTHER)
    return Root(tmp_path)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (RUN, Target(RUN)),
        ("20260830_142233", Target(RUN)),
        ("sess_eda", Target(RUN)),
        ("latest", Target(OTHER)),
        (f"{RUN}#0016", Target(RUN, 16)),
        ("20260830_142233#16", Target(RUN, 16)),
        ("sess_eda#0003", Target(RUN, 3)),
        ("latest#10000", Target(OTHER, 10000)),
        ("#0002", Target(OTHER, 2)),
    ],
)
def test_names(root, text, target):
    assert resolve(root, text) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        "..",
        ".",
        "/",
        "../x",
        "x/../y",
        f"{RUN}/..",
        "\0",
        "nothing#3",
        "%",
        ".agentrund",
    ],
)
def test_names_of_nothing(root, text):
    with pytest.raises(NoSuchRun):
        resolve(root, text)


def test_an_ambiguous_prefix_lists_the_matches(root):
    with pytest.raises(UsageError) as caught:
        resolve(root, "2026")
    assert RUN in caught.value.message
    assert OTHER in caught.value.message


def test_many_matches_are_not_all_listed(tmp_path):
    for n in range(12):
        (tmp_path / "runs" / f"20260830_142233_{n:04x}").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"matches 12 runs: .*, …"):
        resolve(Root(tmp_path), "2026")


def test_a_session_with_a_number_sign_is_a_session_first(tmp_path):
    session = ("run.start", None, {"session_id": "issue#7", "source": "a", "pid": 1})
    write_run(tmp_path, [session])
    assert resolve(Root(tmp_path), "issue#7") == Target(RUN)
    assert resolve(Root(tmp_path), "issue#7#0001") == Target(RUN, 1)


def test_latest_without_its_link_is_the_newest_id(root):
    (root.path / "latest").unlink()
    assert resolve(root, "latest") == Target(OTHER)
    (root.path / "latest").symlink_to("../../etc")
    assert resolve(root, "latest") == Target(OTHER)


def test_latest_of_an_empty_root(tmp_path):
    with pytest.raises(NoSuchRun):
        resolve(Root(tmp_path), "latest")


@pytest.mark.parametrize(("text", "seq"), [("#0123", 123), ("123", 123), ("#0", 0)])
def test_anchors(text, seq):
    assert parse_anchor(text) == seq


@pytest.mark.parametrize("text", ["", "#", "x", "-1", "#1#2"])
def test_no_anchors(text):
    with pytest.raises(UsageError):
        parse_anchor(text)


@pytest.mark.parametrize("text", ["latest#x", "#x", "latest#", "latest#-1", f"{RUN}#1x", "sess_eda#²"])
def test_events_without_a_number(root, text):
    with pytest.raises(UsageError, match="is no event number"):
        resolve(root, text)


def test_a_name_of_nothing_is_no_run_whatever_its_event(root):
    with pytest.raises(NoSuchRun):
        resolve(root, "nothing#x")
