"""What has come over OTLP, counted by client: what of it no rule reads, and what its senders have lost.

A client is a ``service.name`` and a scope (the instrumentation). Counts only: it decides nothing about an
item, holds a bounded number of names, and is told of every item once it was mapped. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from agentrund.model.event import Event, Json
from agentrund.model.otlp import (
    BadItem,
    Item,
    LogItem,
    Mapped,
    MappedLog,
    MappedSpan,
    MetricItem,
    SpanItem,
    SpanKind,
)
from agentrund.receivers.decode.mapping_tables import READ_IN_PLACE

CLIENTS: Final = 64
NAMES: Final = 200
"""Attributes of one client;"""
NAME_MAX: Final = 120
"""characters of a name."""
OTHERS: Final = "(others)"
"""Stands for what comes when there are as many as are held."""

_INDEX: Final = re.compile(r"\.\d+(?=\.|\Z)")


@dataclass(slots=True)
class _Client:
    """One client. ``items`` by kind; ``lag_s`` the least time between an item and its arrival."""

    items: dict[str, int] = field(default_factory=dict)
    unmapped: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    lag_s: float | None = None


class Wire:
    """All clients since ``since``, an ISO time; ``changed`` is for whoever stores it."""

    def __init__(self, since: str) -> None:
        self.since = since
        self.changed = False
        self._clients: dict[tuple[str, str], _Client] = {}
        self._rejected: dict[str, int] = {}
        self._grpc_to_http = 0

    def note(self, item: Item, mapped: Mapped, arrived_at: float) -> None:
        """An item that came at ``arrived_at`` (epoch seconds), and what was made of it."""
        self.changed = True
        client = self._client(item)
        if isinstance(item, BadItem):
            _count(client.items, "bad")
            return
        if isinstance(item, MetricItem):
            _count(client.items, "points")
            ns = item.time_ns
        elif isinstance(item, SpanItem):
            _count(client.items, "spans")
            ns = item.end_ns
        else:
            _count(client.items, "logs")
            ns = item.time_ns
        if ns:
            lag = arrived_at - ns / 1e9
            client.lag_s = lag if client.lag_s is None else min(lag, client.lag_s)
        if isinstance(item, SpanItem | LogItem):
            for what, count in item.dropped.items():
                _count(client.lost, what, count)
        if isinstance(mapped, MappedSpan | MappedLog):
            _note_mapping(client, mapped)

    def note_rejected(self, client: str) -> None:
        """A whole request was rejected, of whoever calls itself so."""
        self.changed = True
        _count(self._rejected, client[:NAME_MAX] or "(nameless)", limit=CLIENTS)

    def note_grpc_on_http(self) -> None:
        """Somebody spoke gRPC at the HTTP port."""
        self.changed = True
        self._grpc_to_http += 1

    def _client(self, item: Item) -> _Client:
        service = item.resource.attributes.get("service.name")
        scope = "" if isinstance(item, BadItem) else item.scope.name
        key = (service[:NAME_MAX] if isinstance(service, str) else "", scope[:NAME_MAX])
        client = self._clients.get(key)
        if client is None:
            if len(self._clients) >= CLIENTS:
                key = (OTHERS, "")
            client = self._clients.setdefault(key, _Client())
        return client

    def as_json(self) -> Json:
        """``since``, ``clients``, ``rejected`` requests by client, and how often ``grpc_to_http``."""
        return {
            "since": self.since,
            "clients": [
                {
                    "service": service,
                    "scope": scope,
                    "items": client.items,
                    "unmapped": dict(sorted(client.unmapped.items(), key=lambda one: -one[1])),
                    "lost": client.lost,
                    "lag_s": None if client.lag_s is None else round(client.lag_s, 3),
                }
                for (service, scope), client in self._clients.items()
            ],
            "rejected": self._rejected,
            "grpc_to_http": self._grpc_to_http,
        }


def _note_mapping(client: _Client, mapped: MappedSpan | MappedLog) -> None:
    if isinstance(mapped, MappedSpan):
        if mapped.kind is SpanKind.OTHER:
            _count(client.items, "no_convention")
        elif mapped.kind is SpanKind.DETAIL:
            _count(client.items, "unused")
    elif mapped.noise:
        _count(client.items, "unused")
        return
    for event in _events(mapped):
        kept = event.payload.get("attributes")
        if isinstance(kept, dict):
            for name in kept:
                if (label := _label(name[:NAME_MAX])) is not None:
                    _count(client.unmapped, label)


def _events(mapped: MappedSpan | MappedLog) -> Iterator[Event]:
    """What an item may become: of a log record its steps, where it tells some."""
    if isinstance(mapped, MappedLog):
        if not mapped.steps:
            yield mapped.event
        for step in mapped.steps:
            yield from _events(step)
        return
    yield from (event for event in (mapped.opener, mapped.closer, mapped.error) if event is not None)


@lru_cache(4096)
def _label(name: str) -> str | None:
    """What an attribute is counted as: all indexes of a list together; None where a rule reads it."""
    return None if name in READ_IN_PLACE else _INDEX.sub(".<n>", name)


def _count(counts: dict[str, int], name: str, by: int = 1, *, limit: int = NAMES) -> None:
    if name not in counts and len(counts) >= limit:
        name = OTHERS
    counts[name] = counts.get(name, 0) + by
