"""What ``OtlpRuns`` knew of an open run, from the run's own records, after the collector was restarted.

Places in the tree that left no record (steps, details) are not known again: a span below one counts
as having a parent that never came, until the root that covers it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from agentrund.model import kinds
from agentrund.model.event import Event, Json, Record
from agentrund.model.otlp import MappedSpan, Resource, SpanKind
from agentrund.model.run_state import OK
from agentrund.model.source import DOOR_OTLP, Identity
from agentrund.sequencer.otlp_commands import RunKey
from agentrund.sequencer.otlp_run import OtlpRun
from agentrund.sequencer.otlp_runs import OtlpRuns, Trace
from agentrund.sequencer.trace_hold import Held
from agentrund.sequencer.trace_release import Fed

_KINDS: Final = {
    kinds.AGENT_START: SpanKind.AGENT,
    kinds.LLM_PROMPT: SpanKind.LLM,
    kinds.TOOL_CALL: SpanKind.TOOL,
}
_ARRIVALS: Final = frozenset({kinds.RUN_START, kinds.RUN_RESUME, kinds.SOURCE_JOIN})


def restore(runs: OtlpRuns, records: Iterable[Record], now: float) -> RunKey | None:
    """Put a run that is still open back, from all its records; None where no OTLP source takes part."""
    run: OtlpRun | None = None
    spans: dict[tuple[str, str, str], MappedSpan] = {}
    for record in records:
        payload = record.payload
        if record.type in _ARRIVALS:
            run = _arrival(runs, run, record, now)
        elif run is None:
            continue
        elif record.type == kinds.SOURCE_EXIT:
            source = str(payload.get("source"))
            if source in run.members:
                run.members[source] = False
                run.died_at = run.died_at if record.status == OK else record.ts
        elif record.src is not None and record.src.get("k") == DOOR_OTLP:
            _item(runs, run, record, record.src, spans, now=now)
    if run is None:
        return None
    run.last_arrival = now
    return run.key


def _arrival(runs: OtlpRuns, run: OtlpRun | None, record: Record, now: float) -> OtlpRun | None:
    payload = record.payload
    key = payload.get("run_key")
    if run is None:
        if not isinstance(key, str):
            return None
        run = runs.runs[RunKey.parse(key)] = OtlpRun(RunKey.parse(key))
    session = payload.get("session_id")
    if record.type != kinds.SOURCE_JOIN:
        run.begin(session if isinstance(session, str) else None)
    if isinstance(session, str):
        run.session = run.session or session
        runs.sessions.setdefault(session, run.key)
    source, resource = payload.get("source"), payload.get("resource")
    if isinstance(source, str) and payload.get("door") == DOOR_OTLP:
        attributes = resource if isinstance(resource, dict) else {}
        runs.producers.restore(source, Identity.from_payload(payload), Resource(attributes), now)
        run.members[source] = True
    return run


def _item(
    runs: OtlpRuns,
    run: OtlpRun,
    record: Record,
    src: Json,
    spans: dict[tuple[str, str, str], MappedSpan],
    *,
    now: float,
) -> None:
    source, trace_id, span_id = str(src.get("id")), src.get("trace"), src.get("span")
    run.last_ts = max(run.last_ts, record.ts)
    if not isinstance(trace_id, str) or not isinstance(span_id, str) or "half" not in src:
        return
    trace = runs.traces.get(trace_id)
    if trace is None:
        trace = runs.traces[trace_id] = Trace(trace_id, now, run=run)
        run.trees[trace_id] = trace.tree
    key = (source, trace_id, span_id)
    span = spans.get(key)
    if record.type in _KINDS:
        span = spans[key] = _span(record, src)
        trace.tree.add(Held(0, source, span, now), span)
        trace.tree.restored(span_id)
    elif span is not None:
        span.notice, span.end_ns, span.failed = False, int(record.ts * 1e9), record.status == "error"
        trace.tree.add(Held(0, source, span, now), span)
        trace.tree.restored(span_id)
    if span is not None:
        run.note(Fed(source, Event(record.type, ts=record.ts, payload=record.payload), span))


def _span(record: Record, src: Json) -> MappedSpan:
    """A span of which the opening record is known: only begun, until the closing one is read."""
    ns = int(record.ts * 1e9)
    parent = src.get("parent")
    return MappedSpan(
        i=0,
        resource=Resource(),
        trace=str(src["trace"]),
        span=str(src["span"]),
        parent=parent if isinstance(parent, str) else None,
        remote=src.get("remote") is True,
        kind=_KINDS[record.type],
        name=record.name or "",
        scope="",
        start_ns=ns,
        end_ns=ns,
        size=0,
        notice=True,
    )
