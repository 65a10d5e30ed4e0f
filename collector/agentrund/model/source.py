"""Who sends: the identity of a source, and what it says of itself when it arrives."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from agentrund.model.event import Json

SOURCE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
"""The stream protocol's grammar for source ids."""

DOOR_SOCKET: Final = "sock"
DOOR_OTLP: Final = "otlp"
DOOR_IMPORT: Final = "import"


@dataclass(slots=True, frozen=True)
class Identity:
    """Which process a source is.

    ``pid_start`` is the kernel's start time of the process in clock ticks after boot (field 22 of
    ``/proc/<pid>/stat``); with ``boot_id`` it tells a process from a later one with the same pid.
    ``pid_from`` is ``"client"`` where the kernel could not name the peer (another pid namespace).
    """

    pid: int | None = None
    pid_start: int | None = None
    boot_id: str | None = None
    uid: int | None = None
    pid_from: str | None = None

    @property
    def is_watchable(self) -> bool:
        """Whether the kernel named the process: a pid that only its sender gave may be anybody's here."""
        return self.pid is not None and self.pid_from is None

    def as_payload(self) -> Json:
        """The identity keys of ``run.start``, ``run.resume`` and ``source.join``."""
        keys: Json = {
            "pid": self.pid,
            "pid_start": self.pid_start,
            "boot_id": self.boot_id,
            "uid": self.uid,
        }
        if self.pid_from is not None:
            keys["pid_from"] = self.pid_from
        return keys

    @classmethod
    def from_payload(cls, payload: Json) -> Identity:
        """Read back what ``as_payload`` wrote; a value of another type counts as unknown."""

        def integer(key: str) -> int | None:
            value = payload.get(key)
            return value if isinstance(value, int) and not isinstance(value, bool) else None

        boot, origin = payload.get("boot_id"), payload.get("pid_from")
        return cls(
            pid=integer("pid"),
            pid_start=integer("pid_start"),
            boot_id=boot if isinstance(boot, str) else None,
            uid=integer("uid"),
            pid_from=origin if isinstance(origin, str) else None,
        )


@dataclass(slots=True)
class Arrival:
    """A source that asks for a place in a run: its id, process, door, and all it says of itself.

    ``late``: it took part in an attempt that is over, where there is one, and resumes nothing.
    ``metadata`` holds the hello's own keys (framework, model, task, …) in the order of the
    protocol, None values left out. ``ts`` is epoch seconds when it differs from now (OTLP, imports).
    """

    source: str
    identity: Identity = field(default_factory=Identity)
    door: str = DOOR_SOCKET
    session_id: str | None = None
    metadata: Json = field(default_factory=dict)
    ts: float | None = None
    late: bool = False
