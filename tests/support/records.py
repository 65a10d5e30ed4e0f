"""Records of one run written by hand, applied to the run's state as they are made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from agentrund.model.event import Record
from agentrund.model.run_state import RunState

RUN = "20260830_142233_a1b2"
KATHMANDU = timezone(timedelta(hours=5, minutes=45))
START = datetime(2026, 8, 30, 14, 22, 33, tzinfo=KATHMANDU).timestamp()


def iso(ts, zone=KATHMANDU):
    return datetime.fromtimestamp(ts, UTC).astimezone(zone).isoformat(timespec="milliseconds")


class Book:
    """A run being written: every ``add`` is one record, ``at`` seconds after the start."""

    def __init__(self, run_id=RUN):
        self.run_id = run_id
        self.state = RunState(run_id)
        self.records: list[Record] = []
        self.changes: list[str | None] = []
        self.attempt = 1

    def add(
        self, kind, name=None, payload=None, *, at=None, parent=None, status=None, dur_ms=None, src=None,
        attempt=None, raw=None,
    ):  # fmt: skip
        seq = len(self.records) + 1
        ts = round(START + (float(seq - 1) if at is None else at), 3)
        record = Record(
            self.run_id, seq, self.attempt if attempt is None else attempt, ts, iso(ts), kind, name, parent,
            status, dur_ms, payload or {}, src, raw,
        )  # fmt: skip
        self.records.append(record)
        self.changes.append(self.state.apply(record))
        return seq

    def start(self, *, source="a1", pid=4410, at=None, **metadata):
        payload = {**metadata, "source": source, "pid": pid, "pid_start": 1, "boot_id": "b", "uid": 0}
        return self.add("run.start", None, payload, at=at, status="ok")

    def resume(self, *, source="a2", pid=48211, reason="crashed", at=None, **metadata):
        self.attempt += 1
        payload = {"attempt": self.attempt, "resume_seq": len(self.records), "reason": reason, **metadata}
        payload |= {"source": source, "pid": pid, "pid_start": 1, "boot_id": "b", "uid": 0}
        return self.add("run.resume", None, payload, at=at, status="ok")

    def die(self, cause="process exited", *, source="a1", steps=(), at=None):
        payload = {"source": source, "cause": cause, "open": list(steps)}
        return self.add("source.exit", None, payload, at=at, status="error")

    def end(self, status="ok", *, at=None, dur_ms=None, **payload):
        return self.add("run.end", None, payload, at=at, status=status, dur_ms=dur_ms)
