"""Files of metric points: bounded, whole lines, gone on with whatever somebody does to them."""

from __future__ import annotations

import json
import os

import pytest

from agentrund.formats import metric_lines
from agentrund.model.errors import RunUnusable, Unavailable
from agentrund.store import folder as folder_module
from agentrund.store.folder import Folder
from agentrund.store.metric_files import STRAY_SEGMENTS, RunMetrics, StrayMetrics, origins
from agentrund.store.open_files import OpenFiles
from agentrund.store.unsynced import Held
from support.metric_points import metric_line

RUN = "20260830_142233_a1b2"
LINE = metric_line(RUN)


class Place:
    """A folder, and what was cut off files in it."""

    def __init__(self, path) -> None:
        self.path = path
        self.cut: list[tuple[str, bytes]] = []
        self.held = Held()

    def run(self, limit: int = 1 << 20) -> RunMetrics:
        return RunMetrics(RUN, self.folder, OpenFiles(), self.held, quarantine=self.quarantine, limit=limit)

    def stray(self, size: int = 1 << 20) -> StrayMetrics:
        return StrayMetrics(
            self.folder, OpenFiles(), self.held, quarantine=self.quarantine, segment_bytes=size
        )

    def folder(self) -> Folder:
        return Folder(os.open(self.path, os.O_RDONLY | os.O_DIRECTORY), str(self.path))

    def quarantine(self, name: str, data: bytes) -> None:
        self.cut.append((name, data))

    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self.file.read_bytes().splitlines()]

    @property
    def file(self):
        return self.path / "metrics.jsonl"

    def origins(self) -> list[tuple[int, int]]:
        with self.folder() as at:
            return list(origins(at))


@pytest.fixture
def place(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    return Place(path)


def write(file: RunMetrics, *numbers: int) -> None:
    for n in numbers:
        file.add(metric_line(RUN, n))
    file.commit()


def test_lines_are_appended_and_known_by_their_origin(place):
    file = place.run()
    assert not place.file.exists(), "no file without a point"
    write(file, 0, 1)
    write(place.run(), 2)
    assert place.origins() == [(7, 0), (7, 1), (7, 2)]
    assert place.file.stat().st_mode & 0o777 == 0o600


def test_what_is_written_is_held_until_it_is_synced(place):
    file = place.run()
    write(file, 0)
    assert place.held.size == place.file.stat().st_size
    batch = file.unsynced.take()
    file.unsynced.sync(batch)
    file.unsynced.succeeded(batch)
    assert place.held.size == 0
    assert file.unsynced.settled


def test_a_torn_tail_is_cut_when_the_file_is_opened(place):
    write(place.run(), 0, 1)
    whole = place.file.read_bytes()
    place.file.write_bytes(whole + LINE[:20])
    assert place.origins() == [(7, 0), (7, 1)]
    write(place.run(), 2)
    assert place.origins() == [(7, 0), (7, 1), (7, 2)]
    assert place.cut == [("metrics.jsonl", LINE[:20])]


def test_beyond_its_bound_the_last_line_counts(place):
    file = place.run(limit=len(LINE) * 3)
    write(file, 0, 1)
    write(file, 2, 3, 4)
    assert place.origins() == [(7, 0), (7, 1), (7, 2)]
    assert place.lines()[-1] == {"run_id": RUN, "name": None, "kind": "full", "left_out": 2}
    size = place.file.stat().st_size
    write(file, 5)
    write(place.run(limit=len(LINE) * 3), 6, 7)
    assert place.lines()[-1]["left_out"] == 5
    assert place.file.stat().st_size == size


def test_what_was_written_over_is_written_over_again_after_a_failed_sync(place):
    file = place.run(limit=0)
    write(file, 0)
    write(file, 1)
    batch = file.unsynced.take()
    file.unsynced.failed(batch, folder_module.SyncFailedError(5, "I/O error"))
    place.file.write_bytes(b"\0" * place.file.stat().st_size)
    batch = file.unsynced.take()
    file.unsynced.sync(batch)
    assert place.lines()[-1]["left_out"] == 2


def test_a_full_disk_keeps_the_queue(place, monkeypatch):
    file = place.run()
    write(file, 0)

    def full(_fd, _data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(folder_module.os, "write", full)
        with pytest.raises(Unavailable, match="No space left"):
            write(file, 1)
        with pytest.raises(Unavailable, match="No space left"):
            write(file, 2)
    file.commit()
    assert place.origins() == [(7, 0), (7, 1), (7, 2)]


def test_a_full_disk_makes_no_second_last_line(place, monkeypatch):
    file = place.run(limit=len(LINE))

    def full(_fd, _data):
        raise OSError(28, "No space left on device")

    write(file, 0)
    with monkeypatch.context() as patched:
        patched.setattr(folder_module.os, "write", full)
        for n in (1, 2):
            with pytest.raises(Unavailable, match="No space left"):
                write(file, n)
    write(file, 3)
    assert [line.get("left_out") for line in place.lines()] == [None, 3]


@pytest.mark.parametrize(
    ("harm", "left"),
    [
        (lambda file: file.unlink(), [1]),
        (lambda file: file.write_bytes(b""), [1]),
        (lambda file: file.write_bytes(file.read_bytes() + LINE.replace(b'"i":0', b'"i":9')), [0, 9, 1]),
        (lambda file: file.write_bytes(file.read_bytes()[:-4]), [1]),
    ],
    ids=["removed", "emptied", "written to", "torn"],
)
def test_a_file_that_somebody_has_changed_is_gone_on_with(place, harm, left):
    file = place.run()
    write(file, 0)
    harm(place.file)
    write(file, 1)
    assert place.origins() == [(7, n) for n in left]


def test_what_is_no_plain_file_is_not_written_to(place, tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    place.file.symlink_to(outside)
    with pytest.raises(Unavailable, match="not a plain file"):
        place.run()
    place.file.unlink()
    file = place.run()
    place.file.symlink_to(outside)
    with pytest.raises(RunUnusable):
        write(file, 0)
    assert outside.read_bytes() == b""
    assert file.take_back() == LINE


def test_a_run_that_was_removed_gives_its_lines_back(place):
    file = place.run()
    write(file, 0)
    place.file.unlink()
    place.path.rmdir()
    with pytest.raises(RunUnusable):
        write(file, 1)
    assert metric_lines.source_of(file.take_back()) == (7, 1)


# -- of no run ---------------------------------------------------------------------------------------


def add(stray: StrayMetrics, *numbers: int) -> None:
    for n in numbers:
        stray.make_room(n)
        stray.add(metric_line(None, n, rq=n))
    stray.commit()


def test_segments_are_named_by_their_first_request_and_gone_on_with(place):
    add(place.stray(), 5, 6)
    add(place.stray(), 8)
    assert sorted(os.listdir(place.path)) == ["0000000000000005.jsonl"]
    assert list(place.stray().origins()) == [(5, 5), (6, 6), (8, 8)]


def test_only_the_newest_segments_are_kept(place):
    stray = place.stray(size=1)
    for n in range(1, 10):
        add(stray, n)
    names = sorted(os.listdir(place.path))
    assert names == [f"{n:016d}.jsonl" for n in range(10 - STRAY_SEGMENTS, 10)]
    assert [rq for rq, _ in stray.origins()] == list(range(10 - STRAY_SEGMENTS, 10))


def test_nothing_is_lost_between_two_segments(place):
    stray = place.stray(size=1)
    for n in (1, 2, 3):
        stray.make_room(n)
        stray.add(metric_line(None, n, rq=n))
    stray.commit()
    assert [rq for rq, _ in place.stray().origins()] == [1, 2, 3]


def test_a_new_segment_knows_no_resource(place):
    stray = place.stray(size=1)
    add(stray, 1)
    stray.described.add("prog")
    stray.make_room(2)
    assert stray.described == set()


def test_something_in_the_place_of_a_segment_is_passed_by(place, tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    stray = place.stray()
    add(stray, 5)
    segment = place.path / "0000000000000005.jsonl"
    segment.unlink()
    segment.symlink_to(outside)
    add(stray, 6)
    assert outside.read_bytes() == b""
    add(place.stray(), 7)
    written = place.path / "0000000000000006.jsonl"
    assert len(written.read_bytes().splitlines()) == 2


def test_something_in_the_place_of_a_full_segment_is_passed_by(place):
    stray = place.stray(size=1)
    stray.make_room(5)
    stray.add(metric_line(None, 5, rq=5))
    (place.path / "0000000000000005.jsonl").mkdir()
    add(stray, 7)
    assert list(stray.origins()) == [(5, 5), (7, 7)]
