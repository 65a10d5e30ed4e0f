"""What no sync has covered is held, and after a sync that failed it is written again before it is believed."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.model.errors import Unavailable
from agentrund.store import folder as folders
from agentrund.store.folder import Folder, SyncFailedError
from agentrund.store.unsynced import FolderGoneError, Held, Unsynced


class Disk:
    """A folder whose file grows."""

    def __init__(self, path, together: Held | None = None) -> None:
        path.mkdir(exist_ok=True)
        self.file = path / "trace.jsonl"
        self.file.touch()
        self.unsynced = Unsynced("run", lambda: Folder.root(path), together or Held())

    def write(self, data: bytes) -> None:
        size = self.file.stat().st_size
        with self.file.open("ab") as file:
            file.write(data)
        self.unsynced.wrote("trace.jsonl", size, data)

    def sync(self, sync=os.fdatasync) -> bool:
        batch = self.unsynced.take()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(folders.os, "fdatasync", sync)
            try:
                self.unsynced.sync(batch)
            except SyncFailedError as error:
                self.unsynced.failed(batch, error)
                return False
        self.unsynced.succeeded(batch)
        return True


def losing(kept: int):
    """A disk that fails a sync, and drops what came after the first ``kept`` bytes."""

    def fdatasync(fd: int) -> None:
        os.pwrite(fd, b"\0" * (os.fstat(fd).st_size - kept), kept)
        raise OSError(errno.EIO, "Input/output error")

    return fdatasync


@given(st.lists(st.one_of(st.binary(max_size=20), st.just(True), st.just(False))))
def test_whatever_the_disk_loses_is_there_again_once_a_sync_succeeds(tmp_path_factory, story):
    disk = Disk(tmp_path_factory.mktemp("disk"))
    written = kept = b""
    for step in story:
        if isinstance(step, bytes):
            disk.write(step)
            written += step
        elif step:
            assert disk.sync()
            kept = written
            assert disk.file.read_bytes() == written
            assert disk.unsynced.settled
        elif len(kept) < len(written):
            assert not disk.sync(losing(len(kept)))
            with pytest.raises(Unavailable):
                disk.unsynced.admit()
        assert disk.unsynced.durable == len(kept)
        assert disk.unsynced.held == len(written) - len(kept)


def test_a_sync_that_could_not_be_asked_for_makes_nothing_suspect(tmp_path):
    disk = Disk(tmp_path / "run")
    disk.write(b"x")
    batch = disk.unsynced.take()
    disk.unsynced.failed(batch, OSError(errno.EMFILE, "Too many open files"))
    disk.unsynced.admit()
    assert not disk.unsynced.settled
    assert disk.sync()


def test_a_folder_that_was_removed_has_nothing_to_keep(tmp_path):
    unsynced = Unsynced("run", lambda: Folder.root(tmp_path).sub("gone"), Held())
    unsynced.wrote("trace.jsonl", 0, b"x")
    with pytest.raises(FolderGoneError):
        unsynced.sync(unsynced.take())
    unsynced.gone()
    assert unsynced.settled
    assert unsynced.together.size == 0


@pytest.mark.parametrize(("number", "kept"), [(errno.EINVAL, True), (errno.EIO, False)])
def test_a_file_system_without_a_sync_of_folders_is_no_failure(tmp_path, monkeypatch, number, kept):
    def fsync(_fd: int) -> None:
        raise OSError(number, "said the file system")

    monkeypatch.setattr(folders.os, "fsync", fsync)
    disk = Disk(tmp_path / "run")
    disk.write(b"x")
    disk.unsynced.made_in()
    assert disk.sync() is kept


def test_what_is_held_is_bounded_and_counted_over_all_runs_together(tmp_path):
    together, seen = Held(), []
    together.most, together.on_change = 10, seen.append
    one, other = Disk(tmp_path / "one", together), Disk(tmp_path / "other", together)
    one.write(b"x" * 8)
    other.write(b"x" * 2)
    for disk in (one, other):
        with pytest.raises(Unavailable):
            disk.unsynced.admit()
    assert one.sync()
    other.unsynced.admit()
    assert other.sync()
    assert seen == [8, 2, -8, -2]
    assert together.size == 0
