"""The discovery file: private, replaced in one step, removed only by the one who wrote it."""

from __future__ import annotations

import json
import os

import pytest

from agentrund.model.errors import Unavailable
from agentrund.service import discovery


@pytest.fixture
def found(tmp_path):
    return discovery.Discovery(
        pid=os.getpid(),
        socket=str(tmp_path / "a.sock"),
        otlp_grpc="127.0.0.1:4317",
        root=str(tmp_path / ".runs"),
        version="0.1.0",
        started_at="2026-08-30T14:22:33+00:00",
    )


def test_written_private_and_complete(found, tmp_path):
    path = discovery.write(found)
    assert path == tmp_path / "a.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text()) == {
        "pid": os.getpid(),
        "socket": str(tmp_path / "a.sock"),
        "otlp_grpc": "127.0.0.1:4317",
        "http": None,
        "root": str(tmp_path / ".runs"),
        "version": "0.1.0",
        "started_at": "2026-08-30T14:22:33+00:00",
    }
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_round_trip_and_removal(found, tmp_path):
    discovery.write(found)
    discovery.write(found)
    assert discovery.read(tmp_path / "a.sock") == found
    discovery.remove(tmp_path / "a.sock")
    assert discovery.read(tmp_path / "a.sock") is None
    discovery.remove(tmp_path / "a.sock")


def test_a_successors_file_is_left_alone(found, tmp_path):
    path = discovery.write(found)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pid": os.getpid() + 1}))
    discovery.remove(tmp_path / "a.sock")
    assert discovery.read(tmp_path / "a.sock") is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid":"x"}'])
def test_what_cannot_be_read_counts_as_absent(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    assert discovery.read(tmp_path / "a.sock") is None


@pytest.mark.parametrize("text", ['{"name": "my settings"}', "{", "[]"])
def test_a_neighbour_that_is_no_discovery_file_is_not_replaced(found, tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(Unavailable, match="in the place of the discovery file"):
        discovery.write(found)
    assert path.read_text() == text
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_one_that_lost_its_power_is_replaced(found, tmp_path):
    (tmp_path / "a.json").touch()
    discovery.write(found)
    assert discovery.read(tmp_path / "a.sock") == found


def test_a_group_may_read_it(found):
    gid = os.getegid()
    info = discovery.write(found, gid).stat()
    assert (info.st_mode & 0o777, info.st_gid) == (0o640, gid)


def test_neither_links_nor_other_peoples_files_are_trusted(found, tmp_path, monkeypatch):
    path = discovery.write(found)
    real = path.rename(tmp_path / "real.json")
    path.symlink_to(real)
    assert discovery.read(tmp_path / "a.sock") is None
    path.unlink()
    real.rename(path)
    if os.geteuid() == 0:
        os.chown(path, 4242, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert discovery.read(tmp_path / "a.sock") is None
