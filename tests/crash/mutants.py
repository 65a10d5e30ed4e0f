"""Collectors with one guard switched off: the harness is worth something if it notices every one of them.

``AGENTRUND_MUTANT`` names the one to make, in this process (``apply``) and in the collectors that tests start
(``python -m crash.mutant``). ``python -m crash.mutation`` tries them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

VARIABLE: Final = "AGENTRUND_MUTANT"


@dataclass(frozen=True, slots=True)
class Mutant:
    """``break_it`` patches the product; ``rows`` of the harness, or ``tests``, must then fail."""

    about: str
    break_it: Callable[[], None]
    rows: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


def _no_tail_repair() -> None:
    from agentrund.store.append_file import AppendFile

    AppendFile.repair_tail = lambda self, quarantine: 0


def _no_deduplication() -> None:
    from agentrund.sequencer.run import RunMachine

    feed = RunMachine.feed

    def twice(self: RunMachine, source_id: str, event: Any, now: float) -> Any:
        if event.n is not None and event.n <= self.state.sources[source_id].high_water:
            event.n = None
        return feed(self, source_id, event, now)

    RunMachine.feed = twice


def _no_digests() -> None:
    from agentrund.store.recent import Recent

    Recent.has = lambda _self, _digest, _now: False


def _replay_forgets_ended_runs() -> None:
    from agentrund.service.otlp_replay import OtlpReplay

    OtlpReplay._holders = lambda self, rqs: []


def _ack_before_write() -> None:
    from agentrund.service.run_actor import RunActor
    from agentrund.service.runs import Runs

    commit = Runs.commit

    def later(self: Runs, actor: RunActor) -> None:
        asyncio.get_running_loop().call_later(0.1, partial(commit, self, actor))

    Runs.commit = later


def _no_ack_on_duplicates() -> None:
    from agentrund.service.stream_session import Session

    event = Session._event

    def silent(self: Session, frame: Any) -> None:
        owed = self._owed
        event(self, frame)
        self._owed = owed

    Session._event = silent


def _no_uid_check() -> None:
    from agentrund.service.access import Access

    Access.owns = staticmethod(lambda uid: True)


def _no_reserve() -> None:
    import resource

    from agentrund.store import descriptors

    def all_of_them() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    descriptors.keep_reserve = all_of_them
    descriptors.with_reserve = lambda opener: opener()
    descriptors.room_for_newcomers = lambda: True


def _no_sync_before_ack() -> None:
    from agentrund.service.syncing import Always

    async def kept(_self: Always, _unsynced: Any) -> None:
        return

    Always.when_kept = lambda self, unsynced, done, failed: done()
    Always.kept = kept


def _sync_on_the_loop() -> None:
    from concurrent.futures import Future, ThreadPoolExecutor

    from agentrund.service import syncing

    class AtOnce(ThreadPoolExecutor):
        def submit(self, work: Callable[..., Any], /, *args: Any, **keys: Any) -> Future[Any]:
            done: Future[Any] = Future()
            try:
                done.set_result(work(*args, **keys))
            except Exception as error:
                done.set_exception(error)
            return done

    syncing.ThreadPoolExecutor = AtOnce


MUTANTS: Final = {
    "tail-repair": Mutant("a torn line is left where it is", _no_tail_repair, rows=("prefixes",)),
    "de-duplication": Mutant(
        "an event sent again is stored again", _no_deduplication, rows=("lost-answers",)
    ),
    "request-digests": Mutant("a request sent again is stored again", _no_digests, rows=("lost-answers",)),
    "replay-of-ended-runs": Mutant(
        "after a kill the journal tells runs that have ended their part again",
        _replay_forgets_ended_runs,
        tests=("tests/integration/test_partly_held.py",),
    ),
    "ack-after-write": Mutant(
        "acknowledged before it is written", _ack_before_write, rows=("collector-kill",)
    ),
    "fsync-before-ack": Mutant(
        "with sync = always acknowledged before it is on the disk",
        _no_sync_before_ack,
        tests=(
            "tests/integration/test_durability.py::test_always_an_ack_follows_the_sync_of_all_it_stands_for",
            "tests/integration/test_durability.py::test_always_an_otlp_answer_follows_the_sync_of_its_request",
        ),
    ),
    "syncs-off-the-loop": Mutant(
        "everybody waits while the disk syncs",
        _sync_on_the_loop,
        tests=("tests/integration/test_slow_disk.py",),
    ),
    "uid-check": Mutant(
        "whoever reaches the socket is served",
        _no_uid_check,
        tests=("tests/integration/test_access.py::test_another_user_is_refused_even_where_modes_let_it_in",),
    ),
    "descriptor-reserve": Mutant(
        "senders may take every descriptor", _no_reserve, tests=("tests/integration/test_descriptors.py",)
    ),
    "ack-on-dup": Mutant(
        "an event sent again is not acknowledged", _no_ack_on_duplicates, rows=("lost-answers",)
    ),
}


def apply(name: str | None) -> None:
    """Break this process's product; None and "" leave it whole."""
    if name:
        MUTANTS[name].break_it()
