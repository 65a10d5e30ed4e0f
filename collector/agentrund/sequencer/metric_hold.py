"""Metric points on their way to a run: which one, and how long they wait for it.

A point goes to the run that it names (an explicit id, a session), else to the run of its process: the only
open one, or where none is open the only one there was. Metrics open no run. Exporters send them every
minute and, at the end of a program, before its spans: so a point whose run is not there yet waits. What has
waited in vain belongs to its process alone, unless the service finds a run of that name in the root.

Pure: ``now`` is monotonic seconds, as for ``OtlpRuns``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from agentrund.model.otlp import Point
from agentrund.sequencer.otlp_commands import BY_PROCESS, BY_RUN, BY_SESSION, BY_TRACE, Measure, RunKey
from agentrund.sequencer.otlp_ends import GRACE_S
from agentrund.sequencer.otlp_run import OtlpRun
from agentrund.sequencer.producers import Producers

WAIT_S: Final = 60.0
"""The exporters' interval."""
_POINT_BYTES: Final = 2000
"""A point of half a dozen attributes, without their text."""


class _Sender(NamedTuple):
    """What points have in common that go to the same run: their source and what they say themselves."""

    source: str
    run_id: str | None
    session: str | None


class _Held(NamedTuple):
    """A point, and when it came in monotonic seconds."""

    at: float
    point: Point


class MetricHold:
    """All points that have no place yet; about ``held_bytes`` of them at most."""

    def __init__(self, run_key: str, held_bytes: int) -> None:
        """``run_key`` is what makes items one run, as for ``OtlpRuns``."""
        self._by_session = run_key not in (BY_PROCESS, BY_TRACE)
        self._held_max = held_bytes
        self._size = 0
        self._queues: dict[_Sender, list[_Held]] = {}

    @property
    def sources(self) -> set[str]:
        """Who sent what is held."""
        return {sender.source for sender in self._queues}

    def add(self, point: Point, run_id: str | None, now: float) -> None:
        """A point that came at ``now``; ``run_id`` is what its sender calls its run."""
        session = point.metric.session if self._by_session else None
        self._queues.setdefault(_Sender(point.source, run_id, session), []).append(_Held(now, point))
        self._size += _size(point)

    def release(
        self,
        runs: Collection[OtlpRun],
        sessions: Mapping[str, RunKey],
        producers: Producers,
        now: float,
        *,
        everything: bool = False,
    ) -> list[Measure]:
        """The points whose run is there, and those that have waited long enough, or are too many to wait."""
        if not self._queues:
            return []
        out: list[Measure] = []
        everything = everything or self._size > self._held_max
        begun = {run.key for run in runs if run.members}
        of_process = _by_source(runs)
        for sender, queue in list(self._queues.items()):
            key = self._named(sender, sessions)
            known = key if key in begun else None
            if key is None:
                key = known = of_process.get(sender.source)
            exited = producers.get(sender.source).exited_at
            over = everything or (exited is not None and now >= exited + GRACE_S)
            ripe = [held for held in queue if over or known is not None or now >= held.at + WAIT_S]
            out += [Measure(key, held.point) for held in ripe]
            self._size -= sum(_size(held.point) for held in ripe)
            if len(ripe) == len(queue):
                del self._queues[sender]
            elif ripe:
                # Not the first ones: a request that was put off comes after later ones.
                self._queues[sender] = [held for held in queue if now < held.at + WAIT_S]
        return out

    @staticmethod
    def _named(sender: _Sender, sessions: Mapping[str, RunKey]) -> RunKey | None:
        """The run that points name themselves."""
        if sender.run_id is not None:
            return RunKey(BY_RUN, sender.run_id)
        if sender.session is not None:
            return sessions.get(sender.session, RunKey(BY_SESSION, sender.session))
        return None


def _by_source(runs: Iterable[OtlpRun]) -> dict[str, RunKey]:
    """Of every source the only run it has open, or, where it has none open, the only one it took part in."""
    found: dict[str, list[OtlpRun]] = {}
    for run in runs:
        for source in run.members:
            found.setdefault(source, []).append(run)
    only = ((source, [r for r in own if not r.ended] or own) for source, own in found.items())
    return {source: own[0].key for source, own in only if len(own) == 1}


def _size(point: Point) -> int:
    """Bytes of memory a point takes, about."""
    return _POINT_BYTES + 2 * point.metric.size
