"""Nothing planted below the root leads out of it."""

from __future__ import annotations

import os

import pytest

from agentrund.model.errors import Unavailable
from agentrund.store.folder import Folder


@pytest.fixture
def canary(tmp_path):
    path = tmp_path / "outside.txt"
    path.write_text("canary")
    yield path
    assert path.read_text() == "canary"


@pytest.fixture
def root(tmp_path, canary):
    with Folder.root(tmp_path / "root") as folder:
        yield folder


def test_a_symbolic_link_in_the_place_of_a_file_is_refused(root, canary):
    os.symlink(canary, f"{root.path}/trace.jsonl")
    with pytest.raises(Unavailable, match="not a plain file"):
        root.open_append("trace.jsonl")


def test_a_symbolic_link_in_the_place_of_a_folder_is_refused(root, tmp_path):
    os.symlink(tmp_path, f"{root.path}/blobs")
    with pytest.raises(OSError):
        root.make("blobs")


def test_a_hard_link_is_refused(root, canary):
    os.link(canary, f"{root.path}/trace.jsonl")
    with pytest.raises(Unavailable, match="not a plain file"):
        root.open_append("trace.jsonl")


def test_a_fifo_is_refused_and_does_not_block(root):
    os.mkfifo(f"{root.path}/trace.jsonl")
    with pytest.raises((Unavailable, OSError)):
        root.open_append("trace.jsonl")
    with pytest.raises((Unavailable, OSError)):
        root.read("trace.jsonl")


def test_replacing_a_planted_link_replaces_the_link(root, canary):
    os.symlink(canary, f"{root.path}/meta.json")
    os.symlink(canary, f"{root.path}/.meta.json.new")
    root.replace("meta.json", b"{}")
    assert root.read("meta.json") == b"{}"


def test_a_link_is_replaced_atomically_and_stays_relative(root):
    root.link("latest", "runs/one")
    root.link("latest", "runs/two")
    assert root.link_target("latest") == "runs/two"
    assert root.names() == ["latest"]


def test_modes_are_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        with Folder.root(tmp_path / "r") as folder, folder.make("runs") as runs:
            os.close(runs.open_append("f"))
            runs.replace("g", b"x")
            modes = [os.stat(f"{runs.path}/{name}").st_mode & 0o777 for name in ("f", "g", ".")]
    finally:
        os.umask(before)
    assert modes == [0o600, 0o600, 0o700]
