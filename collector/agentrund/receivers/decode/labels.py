"""Names and ids of OTLP senders, which may be of any length, as records can hold them."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from agentrund.model.event import MAX_NAME, MAX_SESSION, Event

_DIGEST: Final = 32


def short_name(name: str) -> str:
    """``name``, cut where it is too long."""
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def label(event: Event, name: str) -> None:
    """Make a long name fit: cut in the event's name, if that is set already, and in full in its payload."""
    if event.name is not None:
        event.name = short_name(name)
    if len(name) > MAX_NAME:
        event.payload.setdefault("name", name)


def short_session(session: str) -> str:
    """``session``; one that is too long ends in its digest, so that different ones stay different."""
    if len(session) <= MAX_SESSION:
        return session
    digest = sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{session[: MAX_SESSION - _DIGEST - 1]}-{digest}"
