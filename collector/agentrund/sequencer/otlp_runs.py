"""Mapped OTLP items in, commands out: which run an item belongs to, when it is fed, when the run ends.

Pure: every method is given the time and returns the commands that follow, to be executed in order; those
with much to do give them part by part, and whoever asks for the next part may look at something else first.
``now`` is monotonic seconds: the wall clock may be set at any moment, and nobody is judged by that.
What goes into records (``arrived_at``, ``ts``) is epoch seconds.

- ``take`` one intake record's items as they were mapped;
- ``process_exited`` when a process ends: that of every peer, watched from its first request on (a crash
  is to be told within seconds, and its items may still be held), and those ``OpenRun``/``Join`` name;
- ``tick`` a few times a second;
- ``grant`` when our own clock stood still (sleep, SIGSTOP): everybody gets a clean interval;
- ``shutdown`` before the collector goes: what is held is fed, nothing is judged;
- ``otlp_restore`` for each run that is still open after a restart, and each that has ended and holds a part
  of what the journal has, before the replay; ``stored`` knows those parts then.

Which run is ``run_keys``'s, and of metrics ``metric_hold``'s; the same trace is always the same run.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from agentrund.model.otlp import Mapped, MappedLog, MappedMetric, MappedSpan, Peer, Point, Pulse
from agentrund.model.source import Identity
from agentrund.sequencer import forgetting, otlp_ends
from agentrund.sequencer.forgetting import slowly
from agentrund.sequencer.metric_hold import MetricHold
from agentrund.sequencer.otlp_commands import (
    BY_SESSION,
    BY_TRACE,
    Adopt,
    Command,
    Done,
    Feed,
    Join,
    OpenRun,
    Part,
    RunKey,
)
from agentrund.sequencer.otlp_run import OtlpRun
from agentrund.sequencer.otlp_stored import StoredItems
from agentrund.sequencer.otlp_trace import Taking, Trace, give_time, is_at_once, no_trace
from agentrund.sequencer.producers import Producer, Producers
from agentrund.sequencer.run_keys import AUTO, RunKeys, named_run
from agentrund.sequencer.signals import Accounts, Life
from agentrund.sequencer.trace_hold import Held, held_size
from agentrund.sequencer.trace_release import Fed, release
from agentrund.sequencer.trace_tree import Added, TraceTree
from agentrund.sequencer.waiting import is_complete, is_deserted, sort_out

HELD_BYTES: Final = 128 << 20
"""All holds together, as ``held_size`` counts; beyond it the oldest traces are released."""
SPANS: Final = 1 << 17
"""Spans whose places are known, some 100 MB; beyond it traces that have been quiet are forgotten."""

ITEMS_AT_ONCE: Final = 64
"""Taken between two looks at something else: about half a millisecond."""

_SWEEP_S: Final = 60.0
_SWEEP_GROWTH: Final = 250
"""An eighth and so many runs, traces and producers more than the last sweep left make the next one due."""
_ROOM: Final = 0.75
"""What is over its bound is brought down to this share of it, so that not every item has to."""


class OtlpRuns:
    """All runs told over OTLP."""

    def __init__(
        self, run_key: str = AUTO, idle_s: float = otlp_ends.IDLE_S, held_bytes: int = HELD_BYTES
    ) -> None:
        """``run_key`` is what makes items one run (see ``RunKeys``); ``idle_s`` the silence that ends one.

        ``held_bytes`` bounds what is held of all traces.
        """
        self._keys = RunKeys(run_key)
        self._idle_s = idle_s
        self.producers = Producers()
        self.traces: dict[str, Trace] = {}
        self.runs: dict[RunKey, OtlpRun] = {}
        self.sessions: dict[str, RunKey] = {}
        self.accounts = Accounts()
        self.stored = StoredItems()
        self.duplicates = 0
        self._metrics = MetricHold(run_key, held_bytes // 8)
        self._waiting: dict[int, int] = {}
        self._held_max = held_bytes
        self._held_bytes = 0
        self._spans = 0
        self._swept = 0.0
        self._swept_size = 0

    # -- inputs -----------------------------------------------------------------------------------

    def take(
        self,
        rq: int,
        arrived_at: float,
        peer: Peer,
        items: list[Mapped],
        now: float,
        *,
        more: bool = False,
    ) -> Iterator[Part]:
        """The items of intake record ``rq``. ``Done(rq)`` follows when the last of them is fed.

        ``more``: they are not all of them, the others follow with the next call.
        """
        out: list[Command] = []
        taking = Taking(rq, peer, now)
        self._waiting[rq] = self._waiting.get(rq, 1)
        for n, item in enumerate(items, 1):
            if n % ITEMS_AT_ONCE == 0:
                yield out
                out = []
            self._take_one(taking, item, arrived_at, out)
        yield out
        for trace, batch in taking.at_once.items():
            yield from self._release(trace, batch, now)
        out = self._release_metrics(now)
        for trace in taking.touched:
            if is_complete(trace, self._run_of(trace), self.producers):
                trace.hold.settle(now)
            if trace.hold.due(now):
                yield from self.release_hold(trace, now)
        if not more:
            self.stored.done(rq)
            self._settle([rq], out)
        yield out
        yield from self._bound_memory(now)

    def _take_one(self, taking: Taking, item: Mapped, arrived_at: float, out: list[Command]) -> None:
        producer = self.producers.of(taking.peer, item.resource, taking.now)
        if isinstance(item, Pulse):
            return
        if isinstance(item, MappedMetric):
            self._hold_metric(taking, Point(taking.rq, producer.id, arrived_at, item))
            return
        give_time(item, arrived_at)
        if isinstance(item, MappedLog) and item.at_once:
            for part in self._parts(taking, item, producer, out):
                self._take_item(taking, part, producer, out)
        else:
            self._take_item(taking, item, producer, out)

    def _parts(
        self, taking: Taking, record: MappedLog, producer: Producer, out: list[Command]
    ) -> list[MappedSpan | MappedLog]:
        """What a record that is its client's account is to the run: steps, an event, or nothing."""
        account = self.accounts.of(record.session or producer.id, taking.now)
        life = account.life_of(record)
        if life is Life.NEXT:
            # What came before it, in one request, is of the former.
            for trace, batch in taking.at_once.items():
                out += chain.from_iterable(self._release(trace, batch, taking.now))
            taking.at_once.clear()
            out += self._end_former(record, producer, taking.now)
        parts = account.told(record)
        for part in parts:
            part.past = life is Life.PAST
        return parts

    def _take_item(
        self, taking: Taking, item: MappedSpan | MappedLog, producer: Producer, out: list[Command]
    ) -> None:
        self._waiting[taking.rq] += 1
        held = Held(taking.rq, producer.id, item, taking.now)
        known = self.stored and self.stored.has(taking.rq, item)
        trace = None if known else self._admit(held, item, taking.peer, out)
        if trace is None:
            self.duplicates += 1
            self._settle([taking.rq], out)
        elif is_at_once(item):
            taking.at_once.setdefault(trace, []).append(held)
        else:
            trace.hold.add(held)
            self._held_bytes += held_size(item)
            taking.touched[trace] = None
            if producer.exited_at is not None:
                trace.hold.settle(taking.now)

    def process_exited(self, identity: Identity, cause: str, now: float, ts: float) -> None:
        """A process has ended. What it sent is released soon, its runs are judged after a grace."""
        self._settle_of(self.producers.exited(identity, cause, now, ts), now)

    def beats_lost(self, now: float, ts: float, timeout_s: float) -> None:
        """Processes that sent heartbeats and nothing for ``timeout_s`` have ended."""
        self._settle_of(self.producers.beats_lost(now, ts, timeout_s), now)

    def _settle_of(self, producers: list[Producer], now: float) -> None:
        gone = {p.id for p in producers}
        for trace in (t for t in self.traces.values() if gone and t.hold):
            mine = not gone.isdisjoint(trace.hold.sources)
            if mine or is_deserted(self._run_of(trace), gone, self.producers):
                trace.hold.settle(now)

    def tick(self, now: float) -> Iterator[Part]:
        """Let time pass: release what has waited long enough, end what has ended, forget what is old."""
        for trace in (yield from slowly(self.traces.values(), lambda trace: trace.hold.due(now))):
            yield from self.release_hold(trace, now)
        yield self._release_metrics(now)
        holding = yield from slowly(self.traces.values(), lambda trace: trace.hold)
        held = {self._run_of(trace) for trace in holding}
        for run in list(self.runs.values()):
            if not run.ended and run not in held:
                yield otlp_ends.judge(run, self.producers, now, self._idle_s)
        yield from self._forget(now)

    def grant(self, now: float) -> None:
        """Time passed without anybody being able to reach us: silence so far does not count."""
        for run in self.runs.values():
            run.last_arrival = max(run.last_arrival, now)
        self.producers.grant(now)

    def shutdown(self, now: float) -> Iterator[Part]:
        """Feed everything that is held. The runs stay open."""
        for trace in list(self.traces.values()):
            while trace.hold:
                yield from self.release_hold(trace, now, everything=True)
        yield self._release_metrics(now, everything=True)

    # -- metrics ----------------------------------------------------------------------------------

    def _hold_metric(self, taking: Taking, point: Point) -> None:
        if self.stored and self.stored.has(point.rq, point.metric):
            self.duplicates += 1
            return
        self._waiting[point.rq] += 1
        self._metrics.add(point, named_run(taking.peer, point.metric.resource), taking.now)

    def _release_metrics(self, now: float, *, everything: bool = False) -> list[Command]:
        ripe = self._metrics.release(
            self.runs.values(), self.sessions, self.producers, now, everything=everything
        )
        out: list[Command] = [*ripe]
        self._settle([one.point.rq for one in ripe], out)
        return out

    # -- traces -----------------------------------------------------------------------------------

    def _admit(
        self, held: Held, item: MappedSpan | MappedLog, peer: Peer, out: list[Command]
    ) -> Trace | None:
        """The trace an item belongs to, with the item in its tree; None where it came before."""
        if item.joins is not None and item.session is not None:
            joined = self._trace(item.joins, held)
            joined.session = joined.session or item.session
            if joined.run is not None:
                self._take_session(joined.run, joined, out)
        if isinstance(item, MappedSpan):
            trace = self.place(held, item)
            if trace is None:
                return None
            if item.secondary:
                self.accounts.of(item.session or held.source, held.at).hold(item)
        else:
            own = no_trace(held.source, item.session, past=item.past)
            trace = self._trace(item.trace or own, held)
        trace.run_id = trace.run_id or named_run(peer, item.resource)
        trace.session = trace.session or item.session
        return trace

    def place(self, held: Held, span: MappedSpan) -> Trace | None:
        """The trace of a span, which is in its tree now; None where it was there before."""
        own = no_trace(held.source, span.session, past=span.past)
        trace = self._trace(span.trace or own, held)
        size = len(trace.tree)
        added = trace.tree.add(held, span)
        if added is Added.FOREIGN:
            # Seeded random numbers repeat a whole trace id in another process.
            trace = self._trace(f"{span.trace}/{held.source}", held)
            size = len(trace.tree)
            added = trace.tree.add(held, span)
        self._spans += len(trace.tree) - size
        return trace if added is Added.NEW else None

    def _trace(self, trace_id: str, held: Held) -> Trace:
        if (own := f"{trace_id}/{held.source}") in self.traces:
            trace_id = own
        trace = self.traces.get(trace_id)
        if trace is None:
            trace = self.traces[trace_id] = Trace(trace_id, held.at)
        trace.last_arrival = max(trace.last_arrival, held.at)
        return trace

    def release_hold(self, trace: Trace, now: float, *, everything: bool = False) -> Iterator[Part]:
        """Feed what a trace holds: what need not wait longer, or everything."""
        self._held_bytes -= trace.hold.size
        ripe = trace.hold.take()
        waiting: list[Held] = []
        if not everything:
            ripe, waiting = sort_out(trace, ripe, self._run_of(trace), self.producers, self.accounts, now=now)
        for held in waiting:
            trace.hold.add(held)
            self._held_bytes += held_size(held.item)
        yield from self._release(trace, ripe, now)

    def _release(self, trace: Trace, batch: list[Held], now: float) -> Iterator[Part]:
        more = self.accounts.settle(trace, batch, self.traces, now)
        fed = yield from release(trace.tree, batch)
        fed += self.accounts.former_turns(trace, now)
        if fed or more:
            run = trace.run or self._run(trace, (fed or more)[0].source)
            if not fed:
                # What spans add to calls that are written begins nothing.
                run.trees.setdefault(trace.id, trace.tree)
            fed += more
            yield from self._feed(run, trace, fed, now)
        elif spans := [h.item for h in batch if isinstance(h.item, MappedSpan) and h.item.secondary]:
            self._attach(trace, batch[0].source, spans, now)
        out: list[Command] = []
        self._settle([held.rq for held in batch], out)
        yield out

    def _attach(self, trace: Trace, source: str, spans: list[MappedSpan], now: float) -> None:
        """Spans that became no event still tell their run of what is missing among them."""
        run = self.runs.get(self.key_of(trace, source)[0])
        if run is not None and not run.ended:
            trace.run = run
            account = self.accounts.of(trace.session or source, now)
            (run.past if account.is_past(spans) else run.trees)[trace.id] = trace.tree

    def _settle(self, rqs: list[int], out: list[Command]) -> None:
        for rq in rqs:
            self._waiting[rq] -= 1
            if self._waiting[rq] == 0:
                del self._waiting[rq]
                out.append(Done(rq))

    def _bound_memory(self, now: float) -> Iterator[Part]:
        if self._held_bytes > self._held_max:
            for trace in sorted((t for t in self.traces.values() if t.hold), key=lambda t: t.hold.deadline):
                yield from self.release_hold(trace, now, everything=True)
                if self._held_bytes <= self._held_max * _ROOM:
                    break
        if self._spans > SPANS:
            for trace in sorted(self.traces.values(), key=lambda t: (not t.is_over, t.last_arrival)):
                if self._spans <= SPANS * _ROOM:
                    break
                self._forget_tree(trace)

    # -- runs -------------------------------------------------------------------------------------

    def _run_of(self, trace: Trace) -> OtlpRun | None:
        """The run of a trace, also of one that only names its session so far."""
        if trace.run is not None or trace.session is None:
            return trace.run
        return self.runs.get(self.sessions.get(trace.session, RunKey(BY_SESSION, trace.session)))

    def _run(self, trace: Trace, source: str) -> OtlpRun:
        """The run of a trace that has none yet."""
        key, binds = self.key_of(trace, source)
        run = self.runs.get(key)
        if run is None:
            run = self.runs[key] = OtlpRun(key, ended=True)
        if binds:
            trace.run = run
        return run

    def key_of(self, trace: Trace, source: str) -> tuple[RunKey, bool]:
        """Which run, and whether the trace is bound to it."""
        return self._keys.of(trace, source, self.sessions, self.runs.values())

    def _feed(self, run: OtlpRun, trace: Trace, fed: list[Fed], now: float) -> Iterator[Part]:
        out: list[Command] = []
        self._take_session(run, trace, out)
        strangers = run.strangers(fed)
        first = strangers[0] if strangers else fed[0].source
        new_trace = trace.id not in run.trees and not trace.is_past
        lives = self.producers.get(first).exited_at is None
        if new_trace and run.key.by != BY_TRACE and lives and self._follows(first, run):
            # A new process of a session whose earlier one has gone: that attempt is over first.
            out += otlp_ends.end_gone(run, self.producers)
        logged = any(one.item is not None and is_at_once(one.item) for one in fed)
        if run.ended and (new_trace or strangers or (logged and lives)):
            run.begin(trace.session)
            run.members[first] = True
            out.append(OpenRun(run.key, run.arrival(self.producers.get(first), fed)))
        (run.past if trace.is_past else run.trees)[trace.id] = trace.tree
        run.last_arrival = max(run.last_arrival, now)
        for n, one in enumerate(fed, 1):
            if n % ITEMS_AT_ONCE == 0:
                yield out
                out = []
            self._join(run, one.source, fed, out)
            run.note(one)
            out.append(Feed(run.key, one.source, one.event))
            if isinstance(one.item, MappedLog) and one.item.ends_session:
                out += otlp_ends.finish(run, "session.end")
        yield [*out, *otlp_ends.leave_late(run)]

    def _follows(self, source: str, run: OtlpRun) -> bool:
        """Whether a process was first heard of when those of a run had gone; else it worked beside them."""
        exits = [self.producers.get(living).exited_at for living in run.living()]
        return all(at is not None and at <= self.producers.get(source).since for at in exits)

    def _join(self, run: OtlpRun, source: str, fed: list[Fed], out: list[Command]) -> None:
        lives = run.members.get(source)
        if lives or (lives is False and (run.ended or self.producers.get(source).exited_at is not None)):
            return
        run.members[source] = True
        out.append(Join(run.key, run.arrival(self.producers.get(source), fed)))

    def _end_former(self, record: MappedLog, producer: Producer, now: float) -> list[Command]:
        """A sender counts anew under its session: its former process is gone, and with it that attempt."""
        session = record.session
        if (
            session is None
            or (run := self.runs.get(self.sessions.get(session, RunKey(BY_SESSION, session)))) is None
        ):
            return []
        out: list[Command] = []
        for trace in [t for t in self.traces.values() if t.session == session and t.hold]:
            out += chain.from_iterable(self.release_hold(trace, now, everything=True))
        out += otlp_ends.end_as_gone(run, self.producers)
        self.drop_steps(run, producer.id, session)
        return out

    def drop_steps(self, run: OtlpRun, source: str, session: str | None) -> None:
        """What a source's log records told was of an attempt that is over: it does not count in the next."""
        own = self.traces.get(no_trace(source, session))
        if own is not None:
            self._forget_tree(own)
            own.tree = TraceTree()
            run.trees.pop(own.id, None)

    def _take_session(self, run: OtlpRun, trace: Trace, out: list[Command]) -> None:
        session = trace.session
        if session is None or session in self.sessions:
            return
        self.sessions[session] = run.key
        if run.session is None:
            run.session = session
            if not run.ended:
                out.append(Adopt(run.key, session))

    # -- forgetting -------------------------------------------------------------------------------

    def _forget(self, now: float) -> Iterator[Part]:
        size = len(self.traces) + len(self.runs) + len(self.producers)
        if now < self._swept + _SWEEP_S and size < self._swept_size * 9 // 8 + _SWEEP_GROWTH:
            return
        yield from self._forget_runs(now)
        yield from self._forget_traces(now)
        wanted = self._metrics.sources.union(*(run.members for run in self.runs.values()))
        for trace in (yield from slowly(self.traces.values(), lambda trace: trace.hold)):
            wanted |= trace.hold.sources
        idle = self.producers.idle_since(now - forgetting.RUN_S, forgetting.ENDED_RUNS)
        self.producers.forget(source for source in idle if source not in wanted)
        wanted |= {session for session, key in self.sessions.items() if not self.runs[key].ended}
        self.accounts.forget(now - forgetting.RUN_S, wanted)
        self._swept = now
        self._swept_size = len(self.traces) + len(self.runs) + len(self.producers)

    def _forget_runs(self, now: float) -> Iterator[Part]:
        gone = yield from forgetting.old_runs(self.runs.values(), self.traces.values(), now)
        if not gone:
            return
        for trace in (yield from slowly(self.traces.values(), lambda trace: trace.run in gone)):
            self._forget_tree(trace)
            del self.traces[trace.id]
        self.runs = {key: run for key, run in self.runs.items() if run not in gone}
        self.sessions = {s: k for s, k in self.sessions.items() if k in self.runs}

    def _forget_traces(self, now: float) -> Iterator[Part]:
        for trace in (yield from forgetting.empty_traces(self.runs.values(), self.traces.values())):
            del self.traces[trace.id]
        gone, over = yield from forgetting.quiet_traces(self.runs.values(), self.traces.values(), now)
        for n, trace in enumerate(gone):
            if n % ITEMS_AT_ONCE == 0:
                yield ()
            self._forget_tree(trace)
            del self.traces[trace.id]
            if trace.run is not None:
                trace.run.forget(trace.id)
        for trace in over:
            self._forget_tree(trace)

    def _forget_tree(self, trace: Trace) -> None:
        if not trace.hold:
            self._spans -= len(trace.tree)
            trace.tree.forget()
