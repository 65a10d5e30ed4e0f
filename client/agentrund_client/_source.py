"""One process's voice in one run: a source id, a counter of spans, events made into lines."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable

from agentrund_client._clean import merged, name_of
from agentrund_client._link import Link
from agentrund_client._wire import Frame, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What the collector takes as a name; a longer one is cut, and stands in full in the payload.
_MAX_NAME = 4096
# Room for `{"n":<20 digits>,` and the newline in front of and behind what `encode` gives.
_NUMBER_ROOM = 32
_EMPTY: tuple[Any, ...] = (None, [], {}, "")


class Source:
    """A source as the protocol means it: one per process and run, a new one after every fork."""

    def __init__(
        self, opening: Frame, *, run_id: str | None, parent: str | None, on_welcome: Callable[[Frame], None]
    ) -> None:
        """`opening` is hello without what differs by source; `parent` is `source/span` or `source/`."""
        self.pid = os.getpid()
        self.id = f"{self.pid}-{os.urandom(6).hex()}"
        self.parent = parent
        self.ended = False
        self.next_span = itertools.count(1).__next__
        self.link = Link(
            {
                "op": "hello",
                "v": 1,
                "source": self.id,
                **opening,
                "pid": self.pid,
                "run_id": run_id,
                "parent": parent,
                "ts": time.time(),
            },
            on_welcome,
        )

    @property
    def top(self) -> str | None:
        """The `parent` of events outside of every step here: a span of the parent process, if any."""
        return self.parent if self.parent and not self.parent.endswith("/") else None

    def emit(
        self,
        kind: str,
        name: str | None,
        payload: dict[str, Any],
        *,
        span: str | None = None,
        parent: str | None = None,
        status: str | None = None,
        dur_ms: int | None = None,
        must: bool = False,
    ) -> None:
        """Send one event. `payload` may hold anything, `dur_ms` is milliseconds, `must` passes the bounds."""
        if name is not None and len(name) > _MAX_NAME:
            name, payload = name[: _MAX_NAME - 1] + "…", merged(payload, {"name": name})
        event: Frame = {"type": kind}
        if name is not None:
            event["name"] = name
        if span is not None:
            event["span"] = span
        if parent is not None:
            event["parent"] = parent
        event["ts"] = time.time()
        if status is not None:
            event["status"] = status
        if dur_ms is not None:
            event["dur_ms"] = dur_ms
        event["payload"] = payload
        body = encode(event)
        if len(body) > self.link.max_line - _NUMBER_ROOM:
            # The event stays, so that an open step is closed; only what nobody would take is left out.
            event["payload"] = {"notice": f"payload of {len(body)} bytes is over the collector's line limit"}
            body = encode(event)
        self.link.put(body, must=must)


def opening_of(
    session_id: str | None,
    guardrails: Any,
    meta: Any,
    tags: Any,
    described: dict[str, Any],
) -> Frame:
    """The part of hello that is the same for every source of the run in this program."""
    from agentrund_client._meta import process_metadata  # noqa: PLC0415 - reads files; only where a run starts

    opening = {
        **{key: name_of(value) for key, value in described.items()},
        "tags": _tags(tags),
        **process_metadata(),
        "guardrails": guardrails if isinstance(guardrails, dict) else None,
        "meta": meta if isinstance(meta, dict | None) else {"meta": meta},
    }
    return {"session_id": session_id, **{key: value for key, value in opening.items() if value not in _EMPTY}}


def _tags(tags: Any) -> list[str]:
    """A list of strings, whatever was given: one tag, or any iterable of them."""
    try:
        items = [tags] if isinstance(tags, str) else list(tags or ())
    except Exception:  # noqa: BLE001 - foreign code
        items = [tags]
    return [name_of(tag) or "" for tag in items]
