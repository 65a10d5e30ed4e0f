"""A collector killed at any record, with its whole intake journal still to be worked off: nothing comes twice."""

from __future__ import annotations

from collections import Counter

import pytest

from agentrund.model.event import Record
from agentrund.model.otlp import Peer
from agentrund.model.run_state import RunState
from agentrund.receivers.decode.mapping import map_item
from agentrund.receivers.decode.otlp import decode
from agentrund.sequencer.otlp_commands import RunKey
from agentrund.sequencer.otlp_runs import OtlpRuns
from agentrund.sequencer.otlp_stored import StoredItems
from agentrund.sequencer.run import RunMachine
from integration.test_otlp_captures import CAPTURES
from support.otlp_captures import Capture, load
from support.otlp_execute import Executor, Run, local_iso
from support.otlp_replay import START, identity_of, replay
from support.otlp_restart import restore

CUTS = 8
"""Moments of each capture's life at which it is killed, besides its end."""


def again(capture: Capture, runs: OtlpRuns, executor: Executor) -> None:
    """Give every request once more, in one go as a journal does; then the processes end."""
    now = START + 1000
    processes = capture.processes
    for rq, request in numbered(capture):
        items = [map_item(i) for i in decode(request.signal, request.encoding, request.body) if i is not None]
        peer = Peer("127.0.0.1", request.port, None, identity_of(request, processes))
        executor.perform_parts(runs.take(rq, START + request.at, peer, items, now), now)
    for identity in {identity_of(r, processes) for r in capture.requests}:
        runs.process_exited(identity, "process exited", now, now)
    for step in range(1, 16):
        executor.perform_parts(runs.tick(now + step * 0.25), now + step * 0.25)


def numbered(capture: Capture):
    """The requests as the journal has them: the same bytes once."""
    return list(
        {(r.signal, r.body): (rq, r) for rq, r in reversed(list(enumerate(capture.requests, 1)))}.values()
    )[::-1]


def items(runs: list[Run]) -> Counter:
    """What came of which item of which request, with its content."""
    return Counter(
        (r.src["rq"], r.src["i"], r.src.get("half"), r.type, repr(sorted(r.payload.items(), key=str)))
        for run in runs
        for r in run.records
        if r.src is not None
    )


def killed(whole: Executor, capture: Capture, share: float) -> tuple[OtlpRuns, Executor]:
    """What is known after a start: of each run the first records, the others as if they were never written."""
    runs, executor = OtlpRuns(), Executor()
    runs.stored = StoredItems(rq for rq, _ in numbered(capture))
    for key, run in reversed([(key_of(run.records), run) for run in whole.all_runs()]):
        records = run.records[: round(len(run.records) * share)]
        if not records:
            continue
        state = RunState(run.machine.state.run_id)
        for record in records:
            state.apply(record)
        restore(runs, records, START + 1000, ended=not state.is_open)
        executor.runs[key] = Run(RunMachine(state, local_iso), list(records))
    return runs, executor


def key_of(records: list[Record]) -> RunKey:
    return RunKey.parse(records[0].payload["run_key"])


@pytest.mark.parametrize("name", CAPTURES)
def test_a_replay_after_the_end_adds_nothing(name):
    capture = load(name)
    whole = replay(capture.requests, processes=capture.processes)
    runs, executor = killed(whole, capture, 1.0)
    again(capture, runs, executor)
    assert items(executor.all_runs()) == items(whole.all_runs())
    assert sorted(map(len, (r.records for r in executor.all_runs()))) == sorted(
        map(len, (r.records for r in whole.all_runs()))
    )
    assert sorted(executor.done) == [rq for rq, _ in numbered(capture)]


@pytest.mark.parametrize("name", CAPTURES)
def test_a_replay_adds_what_is_missing_and_nothing_twice(name):
    capture = load(name)
    whole = replay(capture.requests, processes=capture.processes)
    for cut in range(CUTS):
        runs, executor = killed(whole, capture, (cut + 0.5) / CUTS)
        again(capture, runs, executor)
        assert items(executor.all_runs()) == items(whole.all_runs()), cut
        assert sorted(executor.done) == [rq for rq, _ in numbered(capture)]
