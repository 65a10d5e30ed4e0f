"""Which processes of OTLP senders are watched, which deaths are only imagined, and who waits for a bad disk."""

from __future__ import annotations

import asyncio
import json
import os
import resource
from collections.abc import Callable
from functools import partial

import pytest

from agentrund.formats import layout
from agentrund.model.errors import Unavailable
from agentrund.model.event import Event
from agentrund.model.source import DOOR_OTLP, Arrival, Identity
from agentrund.sequencer.otlp_commands import BY_SESSION, Done, Feed, OpenRun, RunKey
from agentrund.service import unstored
from agentrund.service.metrics import MetricsWriter
from agentrund.service.otlp_runner import OtlpRunner
from agentrund.service.process_watch import ProcessWatch, boot_id, start_time
from agentrund.store.folder import Folder
from agentrund.store.unsynced import Held, Unsynced
from support.inner_collector import Inner

ME = Identity(os.getpid(), start_time(os.getpid()), boot_id(), os.getuid())


@pytest.mark.parametrize(
    ("identity", "watched", "told"),
    [
        (ME, 1, []),
        (Identity(), 0, []),
        (Identity(1, pid_from="client"), 0, []),
        (Identity(ME.pid, ME.pid_start, "another boot", ME.uid), 0, ["host restarted"]),
        (Identity(ME.pid, ME.pid_start - 1, ME.boot_id, ME.uid), 0, ["process exited"]),
    ],
)
def test_only_a_process_that_the_kernel_named_can_die(identity, watched, told):
    async def play() -> tuple[int, list[str]]:
        watch, heard = ProcessWatch(), []
        runner = OtlpRunner(None, watch, None, None)
        runner.on_exit = lambda _identity, cause: heard.append(cause)
        runner.watch_over(identity)
        await asyncio.sleep(0)
        count = len(watch)
        watch.close()
        return count, heard

    assert asyncio.run(play()) == (watched, told)


def test_a_process_that_cannot_be_seen_now_is_looked_for_again():
    async def play() -> list[int]:
        watch = ProcessWatch()
        runner = OtlpRunner(None, watch, None, None)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            runner.watch_over(ME)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        before = len(watch)
        runner.watch_again()
        after = len(watch)
        watch.close()
        return [before, after]

    assert asyncio.run(play()) == [0, 1]


class Journal:
    """An intake journal of which only the marks are kept."""

    def __init__(self, folder: Callable[[], Folder]) -> None:
        self.marked: list[int] = []
        self.unsynced = Unsynced("intake", folder, Held())

    def done(self, rq: int) -> None:
        self.marked.append(rq)


class TwoRuns:
    """A runner with the runs ``good`` and ``bad``; the trace of the second refuses what it is given."""

    def __init__(self, inner: Inner) -> None:
        self.inner = inner
        self.journal = Journal(partial(inner.root.state_folder, layout.INTAKE))
        self.runner = OtlpRunner(inner.runs, None, self.journal, MetricsWriter(inner.runs))
        for n, name in enumerate(("good", "bad")):
            self.runner.add(
                [OpenRun(self.key(name), Arrival(name, door=DOOR_OTLP, session_id=name)), Done(n)]
            )
        assert self.runner.run()
        self.tried = 0

    @staticmethod
    def key(name: str) -> RunKey:
        return RunKey(BY_SESSION, name)

    def refuse(self) -> None:
        def refused():
            self.tried += 1
            raise Unavailable("no space")

        self.trace = self.inner.runs.actor(self.runner.run_id_of(self.key("bad"))).files.trace
        self.trace.commit = refused

    def heal(self) -> None:
        del self.trace.commit

    def feed(self, name: str, rq: int, text: str = "x") -> bool:
        event = Event("log", payload={"text": text}, src={"rq": rq, "i": 0})
        self.runner.add([Feed(self.key(name), name, event), Done(rq)])
        return self.runner.run()

    def stored(self, name: str) -> list[int]:
        run_id = self.runner.run_id_of(self.key(name))
        lines = (self.inner.folder / "runs" / run_id / "trace.jsonl").read_text().splitlines()
        return [rq for line in lines if (rq := (json.loads(line).get("src") or {}).get("rq")) is not None]


@pytest.fixture
def two_runs(tmp_path):
    def play(story):
        async def whole():
            inner = Inner(tmp_path / "root")
            story(TwoRuns(inner))
            await inner.close()

        asyncio.run(whole())

    return play


def test_a_run_whose_file_refuses_holds_up_no_other(two_runs):
    def story(play):
        play.refuse()
        assert play.feed("bad", 10)
        assert play.feed("good", 11)
        assert (play.stored("good"), play.stored("bad")) == ([11], [])
        assert play.journal.marked == [0, 1, 11]
        assert not play.runner.waiting, "until it is tried again there is nothing to do"
        tried = play.tried
        assert play.runner.run()
        assert play.tried == tried
        play.heal()
        play.runner.retry()
        assert play.runner.run()
        assert play.stored("bad") == [10]
        assert play.journal.marked == [0, 1, 11, 10]

    two_runs(story)


def test_a_run_that_refuses_is_tried_again_with_the_next_beat_and_not_before(two_runs):
    def story(play):
        play.refuse()
        for rq in range(10, 20):
            assert play.feed("bad", rq)
        assert play.tried == 1
        play.heal()
        play.runner.retry()
        assert play.runner.run()
        assert play.stored("bad") == list(range(10, 20))
        assert play.journal.marked == [0, 1, *range(10, 20)]

    two_runs(story)


def test_what_a_run_refused_that_is_lost_meanwhile_goes_into_another(two_runs):
    def story(play):
        play.refuse()
        assert play.feed("bad", 10)
        run_id = play.runner.run_id_of(play.key("bad"))
        play.heal()
        (play.inner.folder / "runs" / run_id / "trace.jsonl").unlink()
        play.inner.runs.retry()  # it finds the loss: nothing is queued any more
        assert play.inner.runs.is_lost(run_id)
        play.runner.retry()
        while play.runner.waiting:
            assert play.runner.run()
        assert play.stored("bad") == [10]
        assert play.runner.run_id_of(play.key("bad")) != run_id
        assert play.journal.marked == [0, 1, 10]

    two_runs(story)


def test_a_request_that_only_filled_an_event_of_a_run_that_refuses_stays_too(two_runs):
    def story(play):
        play.refuse()
        filled = Event("log", src={"rq": 10, "i": 0, "logs": [[8, 1]]})
        play.runner.add([Feed(play.key("bad"), "bad", filled), Done(10), Done(9), Done(8)])
        assert play.runner.run()
        assert play.feed("good", 11)
        assert play.journal.marked == [0, 1, 11], "9 filled it without being named"
        play.heal()
        play.runner.retry()
        assert play.runner.run()
        assert play.journal.marked == [0, 1, 11, 10, 9, 8]

    two_runs(story)


def test_what_waits_for_a_file_that_refuses_it_is_bounded(two_runs, monkeypatch):
    monkeypatch.setattr(unstored, "REFUSED_BYTES", 2000)

    def story(play):
        play.refuse()
        assert play.feed("bad", 10)
        assert not play.feed("bad", 11, "x" * 4000)
        assert not play.feed("good", 12)
        assert play.runner.waiting
        assert play.stored("good") == []
        play.heal()
        assert play.runner.run()
        assert (play.stored("good"), play.stored("bad")) == ([12], [10, 11])
        assert not play.runner.waiting

    two_runs(story)


def test_a_disk_that_lets_nothing_begin_is_waited_for(two_runs):
    def story(play):
        def refused(*_args):
            raise Unavailable("no space")

        play.inner.runs.open = refused
        play.runner.add([OpenRun(play.key("new"), Arrival("new", door=DOOR_OTLP, session_id="new"))])
        assert not play.runner.run(), "whoever calls is to wait, not to try again at once"
        assert play.runner.waiting

    two_runs(story)
