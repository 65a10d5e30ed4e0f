"""Whoever reads the journal at a pace of its own gets every request once, in order, whatever happens meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.model.otlp import Encoding, Peer, Signal
from agentrund.store.folder import Folder
from agentrund.store.intake import KEEP_S, KEEP_SEGMENTS, SUFFIX, Intake
from agentrund.store.intake_reader import IntakeReader
from agentrund.store.unsynced import Held

NOW = 1_790_000_000.0


class Journal:
    """An intake of small segments, and a reader of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = NOW
        self.numbers: dict[int, int] = {}
        self.intake: Intake
        self.open()
        self.read_on(0)

    def open(self) -> None:
        self.intake = Intake(self.folder, lambda name, data: None, self.now, Held(), segment_bytes=200)

    def folder(self) -> Folder:
        return Folder.root(self.path)

    def read_on(self, after: int) -> None:
        self.reader = IntakeReader(self.folder, SUFFIX, after)
        self.intake.needed_from = lambda: self.reader.segment

    def put(self, n: int) -> None:
        self.now += 1
        body = f"body {n}".encode() * 3
        record = self.intake.append(self.now, Signal.LOGS, Encoding.JSON, body, Peer(), now=self.now)
        self.numbers[record.rq] = n

    def take(self) -> int | None:
        record = self.reader.next()
        return None if record is None else self.numbers[record.rq]

    def finish(self) -> None:
        """All that is in it is done, on the disk, and old."""
        for rq in self.intake.pending():
            self.intake.done(rq)
        batch = self.intake.unsynced.take()
        self.intake.unsynced.sync(batch)
        self.intake.unsynced.succeeded(batch)
        self.now += KEEP_S + 1

    def close(self) -> None:
        self.reader.close()
        self.intake.close()


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "intake")
    yield made
    made.close()


@given(st.lists(st.sampled_from(["put", "take", "done", "drop", "reopen", "restart"]), max_size=60))
def test_every_request_once_and_in_order(tmp_path_factory, steps):
    journal = Journal(tmp_path_factory.mktemp("j") / "intake")
    put, taken = 0, []
    for step in [*steps, *["take"] * 61]:
        if step == "put":
            journal.put(put := put + 1)
        elif step == "take":
            taken.append(journal.take())
        elif step == "done":
            journal.finish()
        elif step == "drop":
            journal.intake.drop(journal.now)
        elif step == "restart":
            journal.reader.close()
            journal.read_on(journal.reader.after)
        else:
            journal.intake.close()
            journal.open()
            journal.intake.needed_from = lambda: journal.reader.segment
    assert [n for n in taken if n is not None] == list(range(1, put + 1))
    journal.close()


def test_a_segment_that_is_unread_stays_until_there_are_too_many(journal):
    for n in range(1, 100):
        journal.put(n)
        journal.finish()
    assert journal.take() == 1
    segments = len(list(journal.path.iterdir()))
    assert segments > KEEP_SEGMENTS
    journal.intake.drop(journal.now)
    assert len(list(journal.path.iterdir())) == KEEP_SEGMENTS
    assert journal.intake.unread == segments - KEEP_SEGMENTS
    rest = list(iter(journal.take, None))
    assert rest[-1] == 99
    assert rest == sorted(rest), "what it was in the middle of, and what is left"
    journal.intake.drop(journal.now)
    assert len(list(journal.path.iterdir())) == 1


def test_damage_costs_its_segment_and_not_those_after_it(journal):
    for n in range(1, 40):
        journal.put(n)
    first = min(journal.path.iterdir())
    data = bytearray(first.read_bytes())
    data[40] ^= 1
    first.write_bytes(data)
    found = list(iter(journal.take, None))
    assert found == list(range(40 - len(found), 40))
    assert 1 not in found
    assert len(found) > 30
