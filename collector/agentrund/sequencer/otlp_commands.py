"""What ``otlp_runs`` wants done, in order. The service performs each command on a run's machine.

| command | on the run machine |
|---|---|
| ``OpenRun`` | find the run of ``key`` (explicit run id, session id) or make one, then ``arrive`` |
| ``Join`` | ``arrive`` |
| ``Adopt`` | nothing: point the session's link to the run |
| ``Feed`` | ``feed`` |
| ``Leave`` | ``leave(source, cause, ts, extra_open=open_extra, linger=True)`` |
| ``Finish`` | ``finish(status, cause, ts)`` |
| ``Refuse`` | a mark: one of its requests was rejected |
| ``Measure`` | nothing: a line of metrics.jsonl, of the run or of no run |
| ``Done`` | nothing: once everything before it is written, ``Intake.done(rq)`` |

``key`` names a run here; which folder it is, only the service knows. It never changes for a run, and
a command for a key always follows its ``OpenRun``, but for ``Measure``, which may name a run that this
collector has not seen. An ended run may be opened again under its key:
for a session or an explicit run id that is a resume of the same folder, for a trace too (an item of
it came from a process that was not part of it); for a process it is a new run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from agentrund.model.event import Event, Json
from agentrund.model.otlp import Point
from agentrund.model.source import Arrival

BY_RUN: Final = "run"
BY_SESSION: Final = "session"
BY_TRACE: Final = "trace"
BY_PROCESS: Final = "process"


class RunKey(NamedTuple):
    """What makes items belong to one run: an explicit run id, a session, a trace or a process."""

    by: str
    value: str

    def __str__(self) -> str:
        return f"{self.by}:{self.value}"

    @classmethod
    def parse(cls, text: str) -> RunKey:
        """Read back ``str(key)``, as ``run.start`` carries it under ``run_key``."""
        by, _, value = text.partition(":")
        return cls(by, value)


@dataclass(slots=True, frozen=True)
class OpenRun:
    """A source begins or resumes the run of ``key``; ``arrival.ts`` is the time of its earliest item."""

    key: RunKey
    arrival: Arrival


@dataclass(slots=True, frozen=True)
class Join:
    """A further source takes part in an open run."""

    key: RunKey
    arrival: Arrival


@dataclass(slots=True, frozen=True)
class Adopt:
    """A run that began without a session turned out to have one."""

    key: RunKey
    session_id: str


@dataclass(slots=True, frozen=True)
class Feed:
    """One event, its ``src`` filled: ``rq``, ``i``, ``trace``, ``span``, ``half``.

    Openings and points also have the sender's own ``parent`` span id there, and ``remote`` where that
    lies in another process.
    """

    key: RunKey
    source: str
    event: Event


@dataclass(slots=True, frozen=True)
class Refuse:
    """A whole request of a process of the run was rejected."""

    key: RunKey
    why: str


@dataclass(slots=True, frozen=True)
class Measure:
    """One metric point; ``key`` is None where it belongs to its process and to no run."""

    key: RunKey | None
    point: Point


@dataclass(slots=True, frozen=True)
class Leave:
    """A source's end. ``open_extra`` are open steps without an opening event; ``clean`` is cause ``bye``.

    ``ts`` is epoch seconds, None for the moment at which this is performed.
    """

    key: RunKey
    source: str
    cause: str
    clean: bool
    ts: float | None
    open_extra: list[Json] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class Finish:
    """The run's end, ``ok`` or ``failed``; a crash is a ``Leave`` that is not clean, and no ``Finish``."""

    key: RunKey
    status: str
    cause: str
    ts: float


@dataclass(slots=True, frozen=True)
class Done:
    """Every item of intake record ``rq`` has been fed or needs no event."""

    rq: int


Command = OpenRun | Join | Adopt | Feed | Refuse | Measure | Leave | Finish | Done
Part = Sequence[Command]
"""Commands that follow one another; between two parts somebody else may have a turn. It may be empty."""
