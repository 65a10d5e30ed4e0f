"""Rounds of syncs: one at a time, each for all that was written before it, and who is told when."""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest

from agentrund.model.errors import Unavailable
from agentrund.service.syncing import Always, Interval
from agentrund.store import folder as folders
from agentrund.store.folder import Folder
from agentrund.store.unsynced import Held, Unsynced


class Disk:
    """``fdatasync`` waits for ``go``, fails while ``broken``, and counts."""

    def __init__(self, path, monkeypatch) -> None:
        self.path = path
        self.go = threading.Event()
        self.go.set()
        self.broken = False
        self.syncs = 0
        self.together = Held()
        monkeypatch.setattr(folders.os, "fdatasync", self._fdatasync)

    def _fdatasync(self, _fd: int) -> None:
        self.syncs += 1
        assert self.go.wait(10)
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")

    def file(self, name: str = "run") -> Unsynced:
        (self.path / name).mkdir()
        (self.path / name / "trace.jsonl").touch()
        return Unsynced(name, lambda: Folder.root(self.path / name), self.together)


@pytest.fixture
def disk(tmp_path, monkeypatch):
    return Disk(tmp_path, monkeypatch)


def write(syncing: Always | Interval, unsynced: Unsynced) -> None:
    unsynced.wrote("trace.jsonl", unsynced.written, b"x")
    syncing.wrote(unsynced)


async def told(told: list, count: int) -> None:
    async with asyncio.timeout(10):
        while len(told) < count:  # noqa: ASYNC110 - what is told sets no event
            await asyncio.sleep(0)


def test_always_what_is_written_during_a_round_is_in_the_next(disk):
    async def story():
        syncing, run, kept = Always(), disk.file(), []
        disk.go.clear()
        write(syncing, run)
        syncing.when_kept(run, lambda: kept.append(1), kept.append)
        while not disk.syncs:  # noqa: ASYNC110 - it counts in a thread
            await asyncio.sleep(0)
        for n in (2, 3, 4):
            write(syncing, run)
            syncing.when_kept(run, lambda n=n: kept.append(n), kept.append)
        assert kept == []
        disk.go.set()
        await told(kept, 4)
        assert (kept, disk.syncs) == ([1, 2, 3, 4], 2)
        await syncing.close()

    asyncio.run(story())


def test_interval_says_at_once_and_syncs_with_the_beat(disk):
    async def story():
        syncing, run, kept, flushed = Interval(), disk.file(), [], []
        write(syncing, run)
        syncing.when_kept(run, lambda: kept.append(1), kept.append)
        syncing.when_durable(run, lambda: flushed.append(1))
        await syncing.kept(run)
        assert (kept, flushed, disk.syncs) == ([1], [], 0)
        syncing.beat()
        await told(flushed, 1)
        assert run.settled
        await syncing.close()

    asyncio.run(story())


def test_a_flush_syncs_its_own_run_and_no_other(disk):
    async def story():
        syncing, run, other, flushed = Interval(), disk.file(), disk.file("other"), []
        write(syncing, run)
        write(syncing, other)
        syncing.flush(run, lambda: flushed.append(1), flushed.append)
        await told(flushed, 1)
        assert (flushed, run.settled, other.settled) == ([1], True, False)
        await syncing.close()
        assert other.settled

    asyncio.run(story())


def test_a_large_amount_of_all_together_is_synced_before_the_beat(disk):
    disk.together.enough = 1

    async def story():
        syncing, durable = Interval(), []
        for run in (disk.file(), disk.file("other")):
            write(syncing, run)
            syncing.when_durable(run, lambda: durable.append(1))
        await told(durable, 2)
        await syncing.close()

    asyncio.run(story())


def test_who_waits_for_room_waits_for_the_disk_and_no_longer_than_it_helps(disk):
    disk.together.most = 1

    async def story():
        syncing, run = Interval(), disk.file()
        write(syncing, run)
        disk.go.clear()
        waiting = asyncio.ensure_future(syncing.room(disk.together))
        while not disk.syncs:  # noqa: ASYNC110 - a sync sets no event
            await asyncio.sleep(0)
        assert not waiting.done()
        disk.go.set()
        await waiting
        assert not disk.together.full
        disk.broken = True
        write(syncing, run)
        await syncing.room(disk.together)
        assert disk.together.full
        disk.broken = False
        await syncing.close()

    asyncio.run(story())


def test_always_a_failure_is_told_and_what_waits_is_kept_when_the_disk_recovers(disk):
    async def story():
        syncing, run, said = Always(), disk.file(), []
        syncing.on_failure = lambda failed, why: said.append((failed.key, why))
        disk.broken = True
        write(syncing, run)
        syncing.when_kept(run, lambda: said.append("kept"), said.append)
        syncing.flush(run, lambda: said.append("flushed"), said.append)
        await told(said, 3)
        why = "not on stable storage: Input/output error"
        assert said == [("run", "Input/output error"), why, why]
        with pytest.raises(Unavailable):
            await syncing.kept(run)
        disk.broken = False
        assert disk.syncs == 1, "the next try comes with the beat"
        syncing.beat()
        await told(said, 4)
        assert said[3:] == ["kept"]
        assert (disk.path / "run" / "trace.jsonl").read_bytes() == b"x", "it was written again"
        await syncing.close()

    asyncio.run(story())


def test_all_durable_waits_for_every_run(disk):
    async def story():
        syncing, first, second, done = Interval(), disk.file(), disk.file("second"), []
        syncing.when_all_durable(lambda: done.append("nothing was written"))
        write(syncing, first)
        write(syncing, second)
        syncing.when_all_durable(lambda: done.append("all"))
        syncing.flush(first, lambda: done.append("first"), done.append)
        await told(done, 2)
        syncing.beat()
        await told(done, 3)
        assert done == ["nothing was written", "first", "all"]
        await syncing.close()

    asyncio.run(story())


def test_a_bug_in_a_sync_keeps_nothing(disk, monkeypatch):
    async def story():
        syncing, run, said = Always(), disk.file(), []
        with monkeypatch.context() as patch:
            patch.setattr(Unsynced, "sync", lambda _self, _batch: 1 / 0)
            write(syncing, run)
            syncing.when_kept(run, lambda: said.append("kept"), said.append)
            await told(said, 1)
        assert said == ["not on stable storage: division by zero"]
        syncing.beat()
        await told(said, 2)
        assert (said[1], run.settled) == ("kept", True)
        await syncing.close()

    asyncio.run(story())


def test_a_bug_in_one_who_waits_does_not_end_the_rounds(disk):
    async def story():
        syncing, run, kept = Always(), disk.file(), []
        write(syncing, run)
        syncing.when_kept(run, lambda: 1 / 0, kept.append)
        write(syncing, run)
        await syncing.drain()
        write(syncing, run)
        syncing.when_kept(run, lambda: kept.append(1), kept.append)
        await told(kept, 1)
        await syncing.close()

    asyncio.run(story())
