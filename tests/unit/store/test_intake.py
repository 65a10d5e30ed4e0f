from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from agentrund.formats.intake_record import MAGIC
from agentrund.model.errors import Damaged, Unavailable
from agentrund.model.otlp import Encoding, IntakeRecord, Peer, Signal
from agentrund.model.source import Identity
from agentrund.store import intake as intake_module
from agentrund.store.folder import Folder
from agentrund.store.intake import KEEP_S, Intake
from agentrund.store.unsynced import Held

NOW = 1_790_000_000.0
PEER = Peer("127.0.0.1", 40001, "run-7", Identity(12, 34, "boot", 1000))


class Journal:
    """An intake in a temporary folder that can be opened again."""

    def __init__(self, path: Path, segment_bytes: int = 1 << 20) -> None:
        self.path = path
        self.cut: list[tuple[str, bytes]] = []
        self.segment_bytes = segment_bytes

    def open(self, now: float = NOW) -> Intake:
        return Intake(
            lambda: Folder.root(self.path),
            lambda name, data: self.cut.append((name, data)),
            now,
            Held(),
            self.segment_bytes,
        )

    def files(self) -> list[Path]:
        return sorted(self.path.iterdir())


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "intake")


def put(intake: Intake, body: bytes, at: float = NOW) -> IntakeRecord | None:
    return intake.append(at, Signal.TRACES, Encoding.PROTOBUF, body, PEER, now=at)


def undone(intake: Intake) -> list[IntakeRecord]:
    return [intake.read(rq) for rq in intake.pending()]


def sync(intake: Intake) -> None:
    batch = intake.unsynced.take()
    intake.unsynced.sync(batch)
    intake.unsynced.succeeded(batch)


def test_requests_come_back_after_reopening_until_they_are_done(journal):
    intake = journal.open()
    first, second = put(intake, b"one"), put(intake, b"two", NOW + 1)
    intake.done(first.rq)
    intake.close()
    again = journal.open()
    assert undone(again) == [second]
    assert second.peer == PEER
    assert again.undone == 1
    again.done(second.rq)
    again.close()
    assert undone(journal.open()) == []


def test_numbers_grow_even_when_the_clock_does_not_and_after_reopening(journal):
    intake = journal.open()
    numbers = [put(intake, bytes([n]), NOW - n).rq for n in range(5)]
    intake.close()
    numbers.append(put(journal.open(), b"later", NOW - 100).rq)
    assert numbers == sorted(set(numbers))


def test_a_number_is_not_used_again_when_all_segments_are_lost(journal):
    lost = put(journal.open(), b"one").rq
    for file in journal.files():
        file.unlink()
    assert put(journal.open(), b"two", NOW + 0.01).rq > lost


def test_the_same_bytes_within_ten_minutes_are_a_retry(journal):
    intake = journal.open()
    assert put(intake, b"body") is not None
    assert put(intake, b"body", NOW + 5) is None
    assert intake.append(NOW, Signal.LOGS, Encoding.PROTOBUF, b"body", PEER, now=NOW) is not None
    intake.close()
    again = journal.open(NOW + 6)
    assert put(again, b"body", NOW + 6) is None
    assert put(again, b"body", NOW + KEEP_S + 6) is not None


@pytest.mark.parametrize("step", [-3600, 3600, 10 * 365 * 86400])
def test_a_wall_clock_that_is_set_makes_nothing_old_and_keeps_nothing(tmp_path, step):
    """Segments and retries are remembered for ten minutes that pass, whatever the wall clock shows."""
    journal = Journal(tmp_path / "intake", segment_bytes=200)

    def take(intake: Intake, body: bytes, wall: float, now: float) -> IntakeRecord | None:
        return intake.append(wall, Signal.TRACES, Encoding.PROTOBUF, body * 150, PEER, now=now)

    intake = journal.open(100)
    one = take(intake, b"1", NOW, 100)
    two = take(intake, b"2", NOW + step, 101)
    three = take(intake, b"3", NOW + 2, 102)
    assert one.rq < two.rq < three.rq
    for record in (one, two, three):
        intake.done(record.rq)
    assert take(intake, b"2", NOW + step, 103) is None
    sync(intake)
    assert intake.drop(101 + KEEP_S - 0.5) == 1
    assert intake.drop(101.5 + KEEP_S) == 1
    intake.close()
    again = journal.open(5)
    assert take(again, b"3", NOW - step, 6) is None
    assert take(again, b"4", NOW - step, 6).rq > three.rq
    assert take(again, b"3", NOW - step, 6 + KEEP_S).rq > three.rq


def test_segments_are_dropped_oldest_first_when_done_and_old(tmp_path):
    journal = Journal(tmp_path / "intake", segment_bytes=200)
    intake = journal.open()
    requests = [put(intake, bytes([n]) * 150, NOW + n) for n in range(4)]
    assert len(journal.files()) == 4
    for request in (requests[0], requests[2], requests[3]):
        intake.done(request.rq)
    assert intake.drop(NOW + KEEP_S) == 0, "nothing is on stable storage"
    sync(intake)
    assert intake.drop(NOW + KEEP_S) == 1
    assert intake.drop(NOW + 2 * KEEP_S) == 0, "the second is not done"
    intake.done(requests[1].rq)
    sync(intake)
    intake.drop(NOW + 2 * KEEP_S)
    assert len(journal.files()) == 1
    intake.close()
    again = journal.open()
    assert undone(again) == []
    assert put(again, b"next", NOW).rq > requests[-1].rq


@pytest.mark.parametrize("stands", [True, False], ids=["a folder in its place", "a disk that refuses"])
def test_a_segment_that_cannot_be_removed_stands_in_nobodys_way(tmp_path, monkeypatch, stands):
    journal = Journal(tmp_path / "intake", segment_bytes=200)
    intake = journal.open()
    for n in range(3):
        intake.done(put(intake, bytes([n]) * 150, NOW + n).rq)
    sync(intake)
    first = journal.files()[0]
    if stands:
        first.unlink()
        first.mkdir()
    else:
        monkeypatch.setattr(os, "unlink", refuse)
    dropped = intake.drop(NOW + 2 * KEEP_S)
    assert (dropped > 1) is stands
    monkeypatch.undo()
    intake.drop(NOW + 2 * KEEP_S)
    assert first.is_dir() is stands
    assert len([path for path in journal.files() if path.is_file()]) == 1


def refuse(*_args, **_options):
    raise OSError(errno.EROFS, "Read-only file system")


def test_markers_alone_may_fill_segments(tmp_path):
    journal = Journal(tmp_path / "intake", segment_bytes=60)
    intake = journal.open()
    requests = [put(intake, bytes([n]), NOW) for n in range(20)]
    for request in requests:
        intake.done(request.rq)
    intake.close()
    assert undone(journal.open()) == []


def test_a_tail_torn_at_any_byte_is_cut_to_quarantine_and_the_journal_goes_on(journal):
    intake = journal.open()
    kept = put(intake, b"kept")
    whole = journal.files()[0].stat().st_size
    put(intake, b"torn" * 5)
    intake.close()
    data = journal.files()[0].read_bytes()
    for size in range(whole, len(data)):
        journal.files()[0].write_bytes(data[:size])
        journal.cut.clear()
        again = journal.open()
        assert undone(again) == [kept]
        assert b"".join(piece for _, piece in journal.cut) == data[whole:size]
        after = put(again, b"after")
        again.close()
        assert undone(journal.open()) == [kept, after]


def test_a_tear_in_the_magic_line_or_an_empty_file_is_a_fresh_segment(journal):
    put(journal.open(), b"gone")
    for size in range(len(MAGIC)):
        journal.files()[0].write_bytes(MAGIC[:size])
        intake = journal.open()
        assert undone(intake) == []
        request = put(intake, b"new")
        intake.close()
        assert undone(journal.open()) == [request]


def test_a_full_disk_leaves_the_file_as_it_was(journal, monkeypatch):
    intake = journal.open()
    kept = put(intake, b"kept")
    before = journal.files()[0].read_bytes()
    real = os.writev

    def half(fd, pieces):
        real(fd, [b"".join(pieces)[:10]])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(intake_module.os, "writev", half)
    with pytest.raises(Unavailable, match="No space left"):
        put(intake, b"lost")
    assert journal.files()[0].read_bytes() == before
    monkeypatch.undo()
    again = put(intake, b"lost")
    assert again is not None, "what was not stored is no duplicate"
    assert undone(intake) == [kept, again]


def test_a_short_write_is_completed(journal, monkeypatch):
    intake = journal.open()
    real = os.writev
    monkeypatch.setattr(intake_module.os, "writev", lambda fd, pieces: real(fd, [b"".join(pieces)[:10]]))
    request = put(intake, b"x" * 100)
    intake.close()
    assert undone(journal.open()) == [request]


def test_files_are_private_and_there_is_something_to_sync_after_the_first_write(journal):
    intake = journal.open()
    assert intake.unsynced.settled
    put(intake, b"x")
    assert intake.unsynced.held == intake.size
    assert stat.S_IMODE(journal.files()[0].stat().st_mode) == 0o600
    assert intake.size == journal.files()[0].stat().st_size


def test_a_planted_link_is_left_alone(journal, tmp_path):
    put(journal.open(), b"x")
    file = journal.files()[0]
    target = tmp_path / "elsewhere"
    file.rename(target)
    file.symlink_to(target)
    before = target.read_bytes()
    put(journal.open(), b"y")
    assert target.read_bytes() == before
    assert b"y" in journal.files()[-1].read_bytes()


def test_requests_are_read_back_while_others_are_added_and_settled(journal):
    intake = journal.open()
    first, second = put(intake, b"one"), put(intake, b"two")
    numbers = intake.pending()
    assert intake.read(numbers[0]) == first
    intake.done(first.rq)
    put(intake, b"three")
    assert intake.read(numbers[1]) == second


def test_a_request_that_was_damaged_meanwhile_is_said_to_be(journal):
    intake = journal.open()
    request = put(intake, b"one")
    journal.files()[0].write_bytes(journal.files()[0].read_bytes().replace(b"one", b"two"))
    with pytest.raises(Damaged, match="checksum"):
        intake.read(request.rq)


def test_what_is_remembered_is_bounded_in_number_too(tmp_path, monkeypatch):
    monkeypatch.setattr(intake_module, "KEEP_REQUESTS", 3)
    monkeypatch.setattr(intake_module, "KEEP_SEGMENTS", 2)
    journal = Journal(tmp_path / "intake", segment_bytes=200)
    intake = journal.open()
    requests = [put(intake, bytes([n]) * 150) for n in range(4)]
    assert put(intake, bytes([3]) * 150) is None
    assert put(intake, bytes([0]) * 150) is not None, "forgotten for the newer ones"
    for request in requests:
        intake.done(request.rq)
    sync(intake)
    intake.drop(NOW)
    assert len(journal.files()) == 2
