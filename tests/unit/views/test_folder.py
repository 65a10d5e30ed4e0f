"""Which root a reader takes, and what it refuses to open below it."""

from __future__ import annotations

import contextlib
import os

import pytest

from agentrund.model.errors import Damaged, NoSuchRun, UsageError
from agentrund.views.folder import Root, find_root


def test_the_named_root_wins(tmp_path):
    (tmp_path / ".runs").mkdir()
    named = tmp_path / "named"
    named.mkdir()
    assert find_root(named, tmp_path, lambda: None).path == named
    with pytest.raises(UsageError, match="gone"):
        find_root(tmp_path / "gone", tmp_path, lambda: None)


def test_then_runs_here_then_the_collectors(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    assert find_root(None, tmp_path, lambda: other).path == other
    (tmp_path / ".runs").mkdir()
    assert find_root(None, tmp_path, lambda: other).path == tmp_path / ".runs"


@pytest.mark.parametrize("collector", [None, "gone"])
def test_no_root_anywhere(tmp_path, collector):
    with pytest.raises(NoSuchRun):
        find_root(None, tmp_path, lambda: collector and tmp_path / collector)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "runs" / "r").mkdir(parents=True)
    (tmp_path / "runs" / "r" / "f").write_text("x")
    return Root(tmp_path)


def test_plain_files_are_read(root):
    assert root.read("runs/r/f") == b"x"
    with pytest.raises(FileNotFoundError):
        root.read("runs/r/g")
    with pytest.raises(FileNotFoundError):
        root.read("runs/q/f")


@pytest.mark.parametrize(
    "path", ["../x", "runs/../runs/r/f", "/etc/passwd", "runs//r/f", "", ".", "runs/r/."]
)
def test_paths_that_leave_are_refused(root, path):
    with pytest.raises(Damaged):
        root.open(path)


def test_links_and_fifos_are_refused(root):
    folder = root.path / "runs" / "r"
    (folder / "link").symlink_to("f")
    (root.path / "runs" / "linked").symlink_to("r")
    os.mkfifo(folder / "fifo")
    for path in ("runs/r/link", "runs/linked/f", "runs/r/fifo", "runs/r"):
        with pytest.raises(Damaged):
            root.open(path)


def test_only_folders_are_runs(root):
    (root.path / "runs" / "file").touch()
    (root.path / "runs" / "linked").symlink_to("r")
    (root.path / "runs" / ".hidden").mkdir()
    assert root.run_ids() == ["r"]
    assert root.has_run("r")
    for name in ("file", "linked", ".hidden", "", "..", "r/"):
        assert not root.has_run(name)


def test_nothing_is_left_open(root):
    before = len(os.listdir("/proc/self/fd"))
    for path in ("runs/r/f", "runs/r", "runs/q/f", "../x"):
        with contextlib.suppress(Damaged, OSError):
            root.open(path).close()
    assert len(os.listdir("/proc/self/fd")) == before
