"""What ``OtlpRuns`` knew of a run, from the run's own records, after the collector was restarted.

Which signal was the account of a client that tells everything twice is known by what was written: a
step without a trace came of a log record, ``signal`` names the other kind.

Places in the tree that left no record (steps, details) are known again only by what is written below
them: the first span that comes below one counts as having a parent that never came, until the root that
covers it has ended.
"""

from __future__ import annotations

from typing import Final

from agentrund.model import kinds
from agentrund.model.event import Event, Json, Record
from agentrund.model.otlp import Fault, MappedSpan, Resource, SpanKind
from agentrund.model.run_state import OK, said
from agentrund.model.source import DOOR_OTLP, Identity
from agentrund.sequencer.otlp_commands import RunKey
from agentrund.sequencer.otlp_ends import SILENCE
from agentrund.sequencer.otlp_run import OtlpRun
from agentrund.sequencer.otlp_runs import OtlpRuns
from agentrund.sequencer.otlp_trace import Trace
from agentrund.sequencer.trace_hold import Held
from agentrund.sequencer.trace_release import Fed

_KINDS: Final = {
    kinds.AGENT_START: SpanKind.AGENT,
    kinds.LLM_PROMPT: SpanKind.LLM,
    kinds.TOOL_CALL: SpanKind.TOOL,
    kinds.LOG: SpanKind.POINT,
}
"""By the first record of a span."""
_ARRIVALS: Final = frozenset({kinds.RUN_START, kinds.RUN_RESUME, kinds.SOURCE_JOIN})


class RestoredRun:
    """A run on its way back into ``runs``: ``take`` all its records, then ``finish``.

    It can be done a few records at a time: until ``finish`` nobody is judged by half of it.
    """

    def __init__(self, runs: OtlpRuns, now: float) -> None:
        self._runs = runs
        self._now = now
        self._run: OtlpRun | None = None
        self._spans: dict[tuple[str, str, str], tuple[Trace, MappedSpan]] = {}
        self._sessions: dict[str, None] = {}

    def take(self, record: Record) -> None:
        """The next record."""
        run, payload = self._run, record.payload
        if record.type in _ARRIVALS:
            self._arrival(record)
        elif run is None:
            return
        elif record.type == kinds.RUN_END and not record.late:
            run.died_at = None
        elif record.type == kinds.SOURCE_EXIT:
            source = str(payload.get("source"))
            if source in run.members:
                run.members[source] = False
                if record.status != OK:
                    run.died_at = run.last_ts if payload.get("cause") == SILENCE else record.ts
        elif record.src is not None and record.src.get("k") == DOOR_OTLP:
            self._runs.stored.note(record.src)
            self._item(run, record, record.src)

    def finish(self, *, ended: bool = False) -> RunKey | None:
        """Put the run in its place; returns its key, None where no OTLP source takes part.

        An ``ended`` one only tells of what came: where its key has another run already, that one keeps it.
        """
        run, runs = self._run, self._runs
        if run is None:
            return None
        run.last_arrival = self._now
        if ended:
            run.end()
            run.members = dict.fromkeys(run.members, False)
            known = runs.runs.setdefault(run.key, run)
        else:
            known = runs.runs[run.key] = run
        for trace, _ in self._spans.values():
            trace.run = known
        for session in self._sessions:
            runs.sessions.setdefault(session, run.key)
        return run.key

    def _arrival(self, record: Record) -> None:
        payload = record.payload
        key = payload.get("run_key")
        if self._run is None:
            if not isinstance(key, str):
                return
            self._run = OtlpRun(RunKey.parse(key))
        run, session = self._run, payload.get("session_id")
        if record.type != kinds.SOURCE_JOIN:
            for former in run.members:
                self._runs.drop_steps(run, former, run.session)
            run.begin(session if isinstance(session, str) else None)
        if isinstance(session, str):
            run.session = run.session or session
            self._sessions[session] = None
        source, resource = payload.get("source"), payload.get("resource")
        if isinstance(source, str) and payload.get("door") == DOOR_OTLP:
            attributes = resource if isinstance(resource, dict) else {}
            identity = Identity.from_payload(payload)
            self._runs.producers.restore(source, identity, Resource(attributes), self._now)
            run.members[source] = not record.late
            if record.late:
                run.late.add(source)

    def _item(self, run: OtlpRun, record: Record, src: Json) -> None:
        source, trace_id, span_id = str(src.get("id")), src.get("trace", ""), src.get("span")
        run.last_ts = max(run.last_ts, record.ts)
        self._runs.accounts.of(run.session or source, self._now).restore(src)
        if not isinstance(trace_id, str) or not isinstance(span_id, str) or "half" not in src:
            return
        key = (source, trace_id, span_id)
        if record.type in _KINDS:
            span = _span(record, src, run.session)
        elif key in self._spans:
            span = self._spans[key][1]
            span.notice, span.end_ns, span.failed = False, int(record.ts * 1e9), record.status == "error"
        else:
            return
        rq = src.get("rq")
        trace = self._runs.place(Held(rq if isinstance(rq, int) else 0, source, span, self._now), span)
        if trace is None:
            return  # an earlier life of the collector has told a span twice
        self._spans[key] = trace, span
        (run.past if trace.is_past else run.trees)[trace.id] = trace.tree
        trace.tree.restored(span_id, record.payload)
        was_there = record.parent_seq is not None or src.get("placed") is True
        if record.type in _KINDS and was_there and span.parent is not None:
            # Its parent had come, if only as a place: it stands below a step, or its record says so.
            trace.tree.was_there(span.parent)
        if error := record.payload.get("error_type"):
            trace.tree.tell(Fault(said(error), said(record.payload.get("error"))))
        run.note(Fed(source, Event(record.type, ts=record.ts, payload=record.payload), span))


def _span(record: Record, src: Json, session: str | None) -> MappedSpan:
    """A span of which the first record is known: only begun, until the closing one is read, if it has one."""
    ns = int(record.ts * 1e9)
    parent, call_id = src.get("parent"), record.payload.get("call_id")
    i = src.get("i")
    return MappedSpan(
        i=i if isinstance(i, int) else 0,
        resource=Resource(),
        trace=str(src.get("trace", "")),
        span=str(src["span"]),
        parent=parent if isinstance(parent, str) else None,
        remote=src.get("remote") is True,
        kind=_KINDS[record.type],
        name=record.name or "",
        scope="",
        start_ns=ns,
        end_ns=ns,
        size=0,
        notice=record.type != kinds.LOG,
        session=session,
        call_id=call_id if isinstance(call_id, str) else None,
        logged="trace" not in src,
        turn=src.get("turn") is True,
        pair=src.get("pair"),
        worker=src.get("worker"),
        past=src.get("past") is True,
    )
