"""What a process tells of itself and its runs besides OTLP: that it lives, and that a run is over.

Pure, as ``otlp_runs``: given the time, returns the commands that follow.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentrund.model.otlp import Peer, Resource
from agentrund.model.source import Identity
from agentrund.sequencer import otlp_ends
from agentrund.sequencer.otlp_commands import BY_RUN, BY_SESSION, BY_TRACE, Part, Refuse, RunKey
from agentrund.sequencer.otlp_runs import OtlpRuns
from agentrund.sequencer.otlp_trace import Trace
from agentrund.sequencer.producers import Producer


def beat(runs: OtlpRuns, peer: Peer, resource: Resource, now: float) -> tuple[Producer, list[RunKey]]:
    """A process lives. Returns it and the keys of its open runs, which its silence does not end either."""
    producer = runs.producers.of(peer, resource, now)
    producer.beats = not producer.identity.is_watchable
    mine = [run for run in runs.runs.values() if not run.ended and run.members.get(producer.id)]
    for run in mine:
        if run.key.by != BY_TRACE:
            run.last_arrival = max(run.last_arrival, now)
    return producer, [run.key for run in mine]


def key_of_run(runs: OtlpRuns, run_id: str | None, session: str | None) -> RunKey | None:
    """The key under which a run with this id of its sender's, or this session, is told; None: under none."""
    if session is not None:
        key = runs.sessions.get(session, RunKey(BY_SESSION, session))
    else:
        key = RunKey(BY_RUN, run_id or "")
    return key if key in runs.runs or any(_key(runs, t) == key for t in _holding(runs)) else None


def keys_of_process(runs: OtlpRuns, peer: Peer, resource: Resource, now: float) -> list[RunKey]:
    """The keys of what a process has under way; of all its sources, where ``resource`` says nothing."""
    if resource.attributes or peer.identity.pid is None:
        sources = {runs.producers.of(peer, resource, now).id}
    else:
        sources = set(runs.producers.of_process(peer.identity))
    keys = [run.key for run in runs.runs.values() if not run.ended and not sources.isdisjoint(run.living())]
    keys += [_key(runs, trace) for trace in _holding(runs) if not sources.isdisjoint(trace.hold.sources)]
    return list(dict.fromkeys(keys))


def end(runs: OtlpRuns, key: RunKey, status: str | None, cause: str, now: float) -> Iterator[Part]:
    """A run is over, and went as ``status`` says (None: as its spans tell); what is held comes first."""
    for trace in [t for t in _holding(runs) if _key(runs, t) == key]:
        yield from runs.release_hold(trace, now, everything=True)
    run = runs.runs.get(key)
    if run is not None:
        yield otlp_ends.finish(run, cause, status)


def rejected(runs: OtlpRuns, identity: Identity, why: str) -> Iterator[Part]:
    """A request of a process was rejected unread: a mark in its run, where it has just one that is open."""
    sources = runs.producers.of_process(identity)
    keys = [
        run.key
        for run in runs.runs.values()
        if not run.ended and any(run.members.get(source) for source in sources)
    ]
    if len(keys) == 1:
        yield [Refuse(keys[0], why)]


def _holding(runs: OtlpRuns) -> list[Trace]:
    return [trace for trace in runs.traces.values() if trace.hold]


def _key(runs: OtlpRuns, trace: Trace) -> RunKey:
    if trace.run is not None:
        return trace.run.key
    return runs.key_of(trace, min(trace.hold.sources))[0]
