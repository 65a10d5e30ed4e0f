"""What a run's records mean: the one fold over trace.jsonl.

Living through events, recovering after a kill, rendering agent.logs and deriving the other files all
apply the same records to the same state, so they cannot disagree. Rules:

- everything that changes the state of a run is in ``RunState.apply``;
- it reads nothing but the record: no clock, no process table, no file;
- applying never fails on a foreign or damaged payload: what cannot be read counts as absent.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, TypeGuard

from agentrund.model import kinds
from agentrund.model.event import Json, OpenStep, Record
from agentrund.model.source import DOOR_IMPORT, DOOR_OTLP, DOOR_SOCKET, Identity

RUNNING: Final = "running"
OK: Final = "ok"
FAILED: Final = "failed"
CRASHED: Final = "crashed"

CLEAN_CAUSES: Final = frozenset({"bye", "run.end"})

_NOT_METADATA: Final = frozenset(
    {*kinds.IDENTITY_KEYS, "pid_from", "door", "session_id", "attempt", "resume_seq", "reason"}
)
"""Keys of ``run.start`` and ``run.resume`` that are the collector's, not the owner's."""
OTLP_SEEN: Final = 4096
"""Stored items that are known again. Behind the memory of requests (ten minutes) and of spans' places this is
the last look, and a run may have millions of items."""
_LATE: Final = "late"
"""How a source has left that came when all was over."""
_LARGEST: Final = 1e300


@dataclass(slots=True)
class SourceState:
    """One sender, as far as its records tell."""

    id: str
    identity: Identity
    door: str
    attempt: int
    high_water: int = 0
    """Highest ``n`` that is stored, was refused or is recorded as lost."""
    left: str | None = None
    """Cause of its end, None while it lives."""
    clean: bool = False


@dataclass(slots=True)
class Death:
    """An unclean end: when (epoch seconds and local ISO time), why, and what was open."""

    source: str
    ts: float
    iso: str
    cause: str
    open: list[Json]


@dataclass(slots=True)
class Attempt:
    """One try at a run, from ``run.start`` or ``run.resume`` to its end."""

    n: int
    owner: str
    pid: int | None
    started_ts: float
    started_iso: str
    resume_seq: int
    last_seq: int
    last_ts: float
    last_iso: str
    outcome: str = RUNNING
    cause: str | None = None
    ended_ts: float | None = None
    ended_iso: str | None = None
    first_live_ts: float | None = None
    last_live_ts: float | None = None
    """Lowest and highest ``ts`` of records that are not late; their distance is the active time."""
    deaths: list[Death] = field(default_factory=list)

    @property
    def active_sec(self) -> float:
        """Seconds between the earliest and the latest record that is not late."""
        if self.first_live_ts is None or self.last_live_ts is None:
            return 0.0
        return self.last_live_ts - self.first_live_ts


@dataclass(slots=True)
class Totals:
    """Counters over the whole run, as ``run.end`` and the index show them."""

    llm_calls: int = 0
    tool_calls: int = 0
    errors: int = 0
    reported_usd: float | None = None
    last_error_seq: int | None = None
    last_error: str | None = None


class Change:
    """What applying a record did to the run's attempts, beyond counting."""

    OPENED: Final = "opened"
    ENDED: Final = "ended"
    CRASHED: Final = "crashed"
    LATE: Final = "late"


@dataclass(slots=True)
class RunState:
    """The state of one run after its first ``last_seq`` records."""

    run_id: str
    last_seq: int = 0
    session_id: str | None = None
    metadata: Json = field(default_factory=dict)
    """What the runs' owners said of themselves; an attempt that leaves a key out keeps the earlier value."""
    attempts: list[Attempt] = field(default_factory=list)
    sources: dict[str, SourceState] = field(default_factory=dict)
    open: dict[tuple[str, str], OpenStep] = field(default_factory=dict)
    last_call: dict[str, OpenStep] = field(default_factory=dict)
    """Each source's model call that was answered last: what it asked for may be open at a crash."""
    totals: Totals = field(default_factory=Totals)
    otlp_seen: OrderedDict[tuple[str, ...], None] = field(default_factory=OrderedDict)
    """Keys of the last OTLP items stored, so that a replay or a resend is written once."""

    @property
    def attempt(self) -> Attempt | None:
        """The newest attempt, or None before ``run.start``."""
        return self.attempts[-1] if self.attempts else None

    @property
    def is_open(self) -> bool:
        """Whether an attempt is under way."""
        return bool(self.attempts) and self.attempts[-1].outcome == RUNNING

    def live_sources(self) -> list[SourceState]:
        """Sources of the newest attempt that have not left."""
        now = self.attempts[-1].n if self.attempts else 0
        return [s for s in self.sources.values() if s.left is None and s.attempt == now]

    def open_steps(self, source: str) -> list[OpenStep]:
        """Steps of one source that are still open, in seq order."""
        return sorted((s for (owner, _), s in self.open.items() if owner == source), key=lambda s: s.seq)

    def apply(self, record: Record) -> str | None:
        """Fold one record in; returns a ``Change`` or None. Records must come in seq order."""
        self.last_seq = record.seq
        kind = record.type
        if kind in kinds.LIFECYCLE:
            return self._apply_lifecycle(record)
        late = record.late
        self._stretch(self._attempt_of(record), record, late=late)
        self._settle(record)
        self._count(record)
        self._track_step(record)
        return Change.LATE if late else None

    def _apply_lifecycle(self, record: Record) -> str | None:
        kind, late = record.type, record.late
        if kind in (kinds.RUN_START, kinds.RUN_RESUME):
            return self._open_attempt(record)
        attempt = self._attempt_of(record)
        self._stretch(attempt, record, late=late)
        if kind == kinds.SOURCE_JOIN:
            self._add_source(record)
            return Change.LATE if late else None
        if kind == kinds.SOURCE_EXIT:
            return self._source_exit(attempt, record)
        self._settle(record)
        if not late:
            return self._end(attempt, record)
        self._count(record)
        return Change.LATE

    def _attempt_of(self, record: Record) -> Attempt:
        attempts = self.attempts
        if attempts and attempts[-1].n == record.attempt:
            return attempts[-1]
        for attempt in attempts:
            if attempt.n == record.attempt:
                return attempt
        # A trace that does not begin with run.start (another writer's, or damaged): give it an attempt.
        return self._new_attempt(record)

    def _new_attempt(self, record: Record) -> Attempt:
        owner, pid = record.payload.get("source"), record.payload.get("pid")
        attempt = Attempt(
            n=record.attempt,
            owner=owner if isinstance(owner, str) else "",
            pid=pid if isinstance(pid, int) else None,
            started_ts=record.ts,
            started_iso=record.iso,
            resume_seq=record.seq - 1,
            last_seq=record.seq,
            last_ts=record.ts,
            last_iso=record.iso,
        )
        self.attempts.append(attempt)
        return attempt

    def _open_attempt(self, record: Record) -> str:
        attempt = self._new_attempt(record)
        self._stretch(attempt, record, late=False)
        session = record.payload.get("session_id")
        if isinstance(session, str) and self.session_id is None:
            self.session_id = session
        self.metadata.update(
            (key, value)
            for key, value in record.payload.items()
            if value is not None and key not in _NOT_METADATA
        )
        self._add_source(record)
        return Change.OPENED

    def _add_source(self, record: Record) -> None:
        payload = record.payload
        source = payload.get("source")
        if not isinstance(source, str):
            return
        door = payload.get("door")
        known = self.sources.get(source)
        self.sources[source] = SourceState(
            id=source,
            identity=Identity.from_payload(payload),
            door=door if door in (DOOR_OTLP, DOOR_IMPORT) else DOOR_SOCKET,
            attempt=record.attempt,
            high_water=known.high_water if known else 0,
            left=_LATE if record.late else None,
        )

    @staticmethod
    def _stretch(attempt: Attempt, record: Record, *, late: bool) -> None:
        attempt.last_seq = record.seq
        if late:
            return
        ts = record.ts
        attempt.last_ts, attempt.last_iso = ts, record.iso
        if attempt.first_live_ts is None or ts < attempt.first_live_ts:
            attempt.first_live_ts = ts
        if attempt.last_live_ts is None or ts > attempt.last_live_ts:
            attempt.last_live_ts = ts

    def _source_exit(self, attempt: Attempt, record: Record) -> str | None:
        payload = record.payload
        source = self.sources.get(str(payload.get("source")))
        cause = str(payload.get("cause"))
        clean = record.status == OK
        if source is not None:
            source.left, source.clean = cause, clean
            # A member's run.end is stored as this record; its number is in the payload.
            n = payload.get("n")
            if isinstance(n, int) and n > source.high_water:
                source.high_water = n
        if not clean:
            steps = payload.get("open")
            attempt.deaths.append(
                Death(
                    source=str(payload.get("source")),
                    ts=record.ts,
                    iso=record.iso,
                    cause=cause,
                    open=[s for s in steps if isinstance(s, dict)] if isinstance(steps, list) else [],
                )
            )
            self._count(record)
        if attempt.outcome == RUNNING and attempt.deaths and not self.live_sources():
            self._close(attempt, record, CRASHED, attempt.deaths[-1].cause)
            return Change.CRASHED
        return None

    def _end(self, attempt: Attempt, record: Record) -> str:
        cause = record.payload.get("cause")
        outcome = OK if record.status == OK else FAILED
        self._close(attempt, record, outcome, cause if isinstance(cause, str) else "run.end")
        return Change.ENDED

    @staticmethod
    def _close(attempt: Attempt, record: Record, outcome: str, cause: str) -> None:
        attempt.outcome, attempt.cause = outcome, cause
        attempt.ended_ts, attempt.ended_iso = record.ts, record.iso

    def _settle(self, record: Record) -> None:
        """Move the sender's high-water mark, and remember OTLP items."""
        src = record.src
        if src is None:
            return
        source_id = src.get("id")
        source = self.sources.get(source_id) if isinstance(source_id, str) else None
        top = src.get("lost_to", src.get("n"))
        if source is not None and isinstance(top, int) and top > source.high_water:
            source.high_water = top
        if src.get("k") == DOOR_OTLP:
            self.otlp_seen[otlp_key(src)] = None
            if len(self.otlp_seen) > OTLP_SEEN:
                self.otlp_seen.popitem(last=False)

    def _count(self, record: Record) -> None:
        totals, payload = self.totals, record.payload
        if record.type == kinds.LLM_PROMPT:
            totals.llm_calls += 1
        elif record.type == kinds.TOOL_CALL:
            totals.tool_calls += 1
        error_type = payload.get("error_type")
        if error_type:
            totals.errors += 1
            totals.last_error_seq = record.seq
            totals.last_error = f"{said(error_type)}: {said(payload.get('error'))}"
        cost = payload.get("cost_usd")
        if cost is not None and is_number(cost) and record.type not in (kinds.AGENT_END, kinds.RUN_END):
            totals.reported_usd = (totals.reported_usd or 0.0) + cost

    def _track_step(self, record: Record) -> None:
        src = record.src
        if src is None:
            return
        source, span = src.get("id"), src.get("span")
        if not isinstance(source, str) or not isinstance(span, str):
            return
        if record.type in kinds.OPENERS:
            self.open[source, span] = OpenStep(record.seq, record.type, record.name, record.ts, span, source)
            return
        opens = kinds.CLOSES.get(record.type)
        if opens is None:
            return
        step = self.open.get((source, span))
        if step is not None and step.type == opens:
            del self.open[source, span]
            if opens == kinds.LLM_PROMPT:
                self.last_call[source] = step


def is_number(value: object) -> TypeGuard[float]:
    """Whether a JSON value is a number that can be reckoned with.

    JSON's ``true`` is none, nor is an integer beyond what a float holds: a sender may claim any.
    """
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST


def said(value: object) -> str:
    """A payload value as text: of one that was moved to a blob its preview, nothing for null."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and isinstance(preview := value.get("preview"), str) and "ref" in value:
        return preview
    return "" if value is None else str(value)


def otlp_key(src: Json) -> tuple[str, ...]:
    """What makes an OTLP item the same again: producer, trace, span, half; for logs record and item."""
    if src.get("half"):
        return (str(src.get("id")), str(src.get("trace")), str(src.get("span")), str(src.get("half")))
    return (str(src.get("rq")), str(src.get("i")))
