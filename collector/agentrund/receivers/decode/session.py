"""The session an item says it belongs to."""

from __future__ import annotations

from agentrund.model.event import Json
from agentrund.receivers.decode import mapping_tables as tables
from agentrund.receivers.decode.attributes import parse
from agentrund.receivers.decode.labels import short_session


def session_of(attributes: Json, resource: Json) -> str | None:
    """The session id of an item, else of its resource."""
    return _session(attributes) or _session(resource)


def _session(attributes: Json) -> str | None:
    for key in tables.SESSION:
        if (value := attributes.get(key)) not in (None, ""):
            return short_session(str(value))
    metadata = parse(attributes.get("metadata"))
    if isinstance(metadata, dict):
        for key in tables.SESSION_IN_METADATA:
            if isinstance(value := metadata.get(key), str) and value:
                return short_session(value)
    return None
