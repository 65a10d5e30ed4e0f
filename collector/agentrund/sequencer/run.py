"""The one place that gives numbers: inputs and times in, records out.

Pure: no clock, no file, no process table. Each method appends zero or more records to the run's
state through ``RunState.apply`` and returns them with what they changed; the caller stores them in
order. Everything the machine knows is in the records, so a machine built from a replayed state goes
on exactly where the old one stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from agentrund.model import kinds
from agentrund.model.event import Event, Json, OpenStep, Record
from agentrund.model.run_state import (
    CLEAN_CAUSES,
    CRASHED,
    FAILED,
    OK,
    Attempt,
    RunState,
    SourceState,
    otlp_key,
)
from agentrund.model.source import DOOR_OTLP, DOOR_SOCKET, Arrival
from agentrund.sequencer.states import Act, Input, act_for

EARLIEST: Final = 946_684_800.0
LATEST: Final = 7_258_118_400.0
"""2000-01-01 and 2200-01-01 UTC: outside, a sender's ``ts`` is absurd and the arrival time counts."""

_TOTALS: Final = ("cost_usd", "llm_calls", "tool_calls", "errors")


@dataclass(slots=True)
class Step:
    """One numbered record and what it changed (``run_state.Change`` or None). Not frozen: made per event."""

    record: Record
    change: str | None


class RunMachine:
    """Numbers the events of one run. ``local_iso`` turns epoch seconds into local ISO time."""

    def __init__(self, state: RunState, local_iso: Callable[[float], str]) -> None:
        self.state = state
        self._iso = local_iso

    # -- arrivals ---------------------------------------------------------------------------------

    def arrive(self, who: Arrival, now: float) -> list[Step]:
        """A source takes its place: starts the run, joins the open attempt, or resumes an ended run.

        A source that never left just goes on; it writes nothing. One that is late resumes nothing.
        """
        state = self.state
        act = act_for(state, Input.LATE_ARRIVAL if who.late else Input.ARRIVAL)
        known = state.sources.get(who.source)
        attempt = state.attempt
        here = known is not None and attempt is not None and known.attempt == attempt.n
        if here and known is not None and known.left is None and state.is_open:
            return []
        ts = who.ts if who.ts is not None else now
        payload: Json = {}
        if act is Act.RESUME and attempt is not None:
            payload["attempt"] = attempt.n + 1
            payload["resume_seq"] = state.last_seq
            payload["reason"] = "crashed" if attempt.outcome == CRASHED else "resumed"
        payload["session_id"] = who.session_id
        payload.update(who.metadata)
        payload["source"] = who.source
        payload.update(who.identity.as_payload())
        if who.door != DOOR_SOCKET:
            payload["door"] = who.door
        number = attempt.n if attempt is not None else 1
        if act is Act.RESUME:
            number += 1
        if act is Act.JOIN_LATE:
            src: Json = {"k": who.door, "id": who.source, "late": True}
            return [self._append(kinds.SOURCE_JOIN, ts, number, status=OK, payload=payload, src=src)]
        return [self._append(act.value, ts, number, status=OK, payload=payload)]

    # -- events -----------------------------------------------------------------------------------

    def feed(self, source_id: str, event: Event, now: float) -> list[Step]:
        """One event of a source that has arrived. A repeated ``n`` or OTLP item gives nothing."""
        source = self.state.sources[source_id]
        steps: list[Step] = []
        n = event.n
        if n is not None:
            if n <= source.high_water:
                return steps
            if n > source.high_water + 1:
                steps += self.lost(source_id, n - 1, now)
        src = self._src(source, event)
        if src["k"] == DOOR_OTLP and otlp_key(src) in self.state.otlp_seen:
            return steps
        if event.type == kinds.RUN_END:
            return steps + self._sender_ends(source, event, src, now)
        return [*steps, self._append_event(source, event, src, now)]

    def lost(self, source_id: str, last: int, now: float) -> list[Step]:
        """Events of a source up to ``last`` that are not here yet will never come: one WARNING."""
        source = self.state.sources[source_id]
        first = source.high_water + 1  # whatever lies below a lost range never came either
        if last < first:
            return []
        count = last - first + 1
        src: Json = {"k": source.door, "id": source.id, "lost_from": first, "lost_to": last}
        return [
            self._warn(source, f"{count} events lost: {source.id} n {first} to {last}", src, now, lost=count)
        ]

    def refuse(self, source_id: str, code: str, message: str, n: int | None, now: float) -> list[Step]:
        """A frame was refused: leave a mark in the run, and settle its ``n``."""
        source = self.state.sources[source_id]
        steps: list[Step] = []
        src: Json = {"k": source.door, "id": source.id}
        if n is not None:
            if n <= source.high_water:
                return steps
            if n > source.high_water + 1:
                steps += self.lost(source_id, n - 1, now)
            src["n"] = n
        return [*steps, self._warn(source, f"frame refused: {message}", src, now, refused=code)]

    def note(self, message: str, now: float, **extra: str) -> list[Step]:
        """The collector has something to say about the run: a WARNING, told as the owner's."""
        source = self.state.sources[self.state.attempts[-1].owner]
        return [self._warn(source, message, {"k": source.door, "id": source.id}, now, **extra)]

    # -- ends -------------------------------------------------------------------------------------

    def leave(
        self,
        source_id: str,
        cause: str,
        now: float,
        *,
        extra_open: Iterable[Json] = (),
        linger: bool = False,
        n: int | None = None,
    ) -> list[Step]:
        """A source ends. ``bye`` and ``run.end`` are clean causes, any other is a death.

        ``extra_open`` are open steps that have no opening record. With ``linger`` a clean last end
        leaves the attempt open, for ``finish`` to end when nobody came in time. ``n`` is the number of
        the member's ``run.end`` that this is.
        """
        state = self.state
        source = state.sources[source_id]
        attempt = state.attempt
        if attempt is None or source.left is not None or source.attempt != attempt.n:
            return []
        clean = cause in CLEAN_CAUSES
        others = any(other.id != source_id for other in state.live_sources())
        act = act_for(state, _exit_input(others=others, clean=clean and not attempt.deaths))
        if act is Act.NOTHING:
            return []
        payload: Json = {
            "source": source_id,
            "cause": cause,
            "open": [
                *(_open_entry(step, now) for step in self._open_steps(source, attempt)),
                *(self._requested_entry(step) for step in extra_open),
            ],
        }
        if n is not None:
            payload["n"] = n
        if others and not clean:
            payload["error_type"] = "SourceExited"
            payload["error"] = cause
        status = OK if clean else "error"
        steps = [self._append(kinds.SOURCE_EXIT, now, attempt.n, status=status, payload=payload)]
        if act is Act.EXIT_THEN_END and not linger:
            steps += self.finish(None, "all sources left", now)
        return steps

    def finish(self, status: str | None, cause: str, now: float) -> list[Step]:
        """The collector ends the attempt itself. Without ``status`` any ``error_type`` means failed."""
        if act_for(self.state, Input.FINISH) is Act.NOTHING:
            return []
        return [self._end(status, {"cause": cause}, None, now)]

    # -- inside -----------------------------------------------------------------------------------

    def _sender_ends(self, source: SourceState, event: Event, src: Json, now: float) -> list[Step]:
        attempt = self.state.attempt
        current = attempt is not None and source.attempt == attempt.n
        if attempt is None or not current or not self.state.is_open:
            return [self._append_event(source, event, src, now)]
        if source.left is not None:
            # It had been given up before its own end came in (from a spool): kept, deciding nothing.
            return [self._append_event(source, event, {**src, "late": True}, now)]
        if attempt.owner != source.id:
            return self.leave(source.id, "run.end", now, n=event.n)
        return [self._end(event.status, event.payload, src, _sane(event.ts, now))]

    def _end(self, status: str | None, extra: Json, src: Json | None, ts: float) -> Step:
        attempt = self.state.attempts[-1]
        totals = self.state.totals
        if status is None:
            status = FAILED if totals.errors else OK
        elif status != OK:
            status = FAILED
        payload: Json = {
            "cost_usd": None if totals.reported_usd is None else round(totals.reported_usd, 6),
            "llm_calls": totals.llm_calls,
            "tool_calls": totals.tool_calls,
            "errors": totals.errors,
        }
        payload.update((key, value) for key, value in extra.items() if key not in _TOTALS)
        active = sum(a.active_sec for a in self.state.attempts) + _stretch(attempt, ts)
        return self._append(
            kinds.RUN_END,
            ts,
            attempt.n,
            status=status,
            payload=payload,
            dur_ms=round(active * 1000),
            src=src,
        )

    def _append_event(self, source: SourceState, event: Event, src: Json, now: float) -> Step:
        attempt = self.state.attempt
        late = attempt is None or source.attempt != attempt.n or not self.state.is_open
        if late:
            src["late"] = True
        ts = _sane(event.ts, now)
        status, dur_ms, parent_seq = event.status, event.dur_ms, None
        opens = kinds.CLOSES.get(event.type)
        if opens is not None:
            step = self._opener(source.id, event.span, opens)
            if step is not None:
                parent_seq = step.seq
                if dur_ms is None:
                    dur_ms = round((ts - step.ts) * 1000)
        elif event.parent is not None:
            parent_seq = self._parent(source.id, event.parent)
        if event.type == kinds.LOG and isinstance(level := event.payload.get("level"), str):
            status = level.upper()
        return self._append(
            event.type,
            ts,
            source.attempt,
            name=event.name,
            parent_seq=parent_seq,
            status=status,
            dur_ms=None if dur_ms is None else max(0, dur_ms),
            payload=event.payload,
            raw=event.raw,
            src=src,
        )

    def _opener(self, source: str, span: str | None, opens: str) -> OpenStep | None:
        step = None if span is None else self.state.open.get((source, span))
        return step if step is not None and step.type == opens else None

    def _parent(self, source: str, parent: str) -> int | None:
        step = self.state.open.get((source, parent))
        if step is None and "/" in parent:
            other, _, span = parent.partition("/")
            step = self.state.open.get((other, span))
        return None if step is None else step.seq

    def _open_steps(self, source: SourceState, attempt: Attempt) -> list[OpenStep]:
        """A source's open steps; what an OTLP source left open in an attempt before is told there."""
        steps = self.state.open_steps(source.id)
        return [s for s in steps if s.seq > attempt.resume_seq] if source.door == DOOR_OTLP else steps

    def _requested_entry(self, step: Json) -> Json:
        """A step nobody opened: the model call that asked for it is named by its seq, where it is known."""
        asked = step.get("requested_in")
        if not isinstance(asked, dict):
            return step
        call = self.state.last_call.get(str(asked.get("source")))
        known = call is not None and call.span == asked.get("span")
        return {**step, "requested_in": call.seq if call is not None and known else None}

    @staticmethod
    def _src(source: SourceState, event: Event) -> Json:
        src: Json = {"k": source.door, "id": source.id}
        if event.n is not None:
            src["n"] = event.n
        if event.src is not None:
            src.update(event.src)
        if event.span is not None:
            src["span"] = event.span
        return src

    def _warn(self, source: SourceState, message: str, src: Json, now: float, **extra: int | str) -> Step:
        event = Event(kinds.LOG, payload={"level": "WARNING", "message": message, **extra})
        return self._append_event(source, event, src, now)

    def _append(
        self,
        kind: str,
        ts: float,
        attempt: int,
        *,
        status: str | None,
        payload: Json,
        name: str | None = None,
        parent_seq: int | None = None,
        dur_ms: int | None = None,
        raw: bytes | None = None,
        src: Json | None = None,
    ) -> Step:
        ts = round(ts, 3)
        state = self.state
        record = Record(
            state.run_id,
            state.last_seq + 1,
            attempt,
            ts,
            self._iso(ts),
            kind,
            name,
            parent_seq,
            status,
            dur_ms,
            payload,
            src,
            raw,
        )
        return Step(record, state.apply(record))


def _sane(ts: float | None, now: float) -> float:
    return ts if ts is not None and EARLIEST <= ts <= LATEST else now


def _stretch(attempt: Attempt, ts: float) -> float:
    """How much longer the attempt has been active if it ends at ``ts``."""
    last, first = attempt.last_live_ts, attempt.first_live_ts
    if last is None or first is None:
        return 0.0
    return max(0.0, ts - last) + max(0.0, first - ts)


def _exit_input(*, others: bool, clean: bool) -> Input:
    if others:
        return Input.EXIT_OTHERS_LEFT
    return Input.EXIT_LAST_CLEAN if clean else Input.EXIT_LAST_UNCLEAN


def _open_entry(step: OpenStep, now: float) -> Json:
    return {
        "seq": step.seq,
        "type": step.type,
        "name": step.name,
        "age": round(max(0.0, now - step.ts), 3),
    }
