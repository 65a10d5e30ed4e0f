"""``agentrund doctor``: what came over OTLP, who lost some of it, and what no rule reads.

Reads the counts of ``receivers.wire``, which may be those of an earlier version or nonsense: what cannot be
read is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from agentrund.service.check import NOTE, OK, PROBLEM, Check

AHEAD_S: Final = 1.0
LATE_S: Final = 60.0
SHOWN: Final = 8
"""Attributes named of one client; --json has them all."""


def checks(wire: Mapping[str, Any]) -> Iterator[Check]:
    """What follows from the counts since ``wire["since"]``."""
    since = wire.get("since")
    if not since:
        yield Check("wire", NOTE, "nothing is known of OTLP senders")
        return
    yield _mixed_up(wire)
    for client, count in _counts(wire.get("rejected")).items():
        message = f"{_requests(count)} of {client} rejected since {since}: too large, or no OTLP"
        yield Check("rejected", PROBLEM, message, "see `max_request_bytes`, and the collector's log")
    clients = wire.get("clients")
    for client in clients if isinstance(clients, list) else ():
        if isinstance(client, dict):
            yield from _client(client)


def _mixed_up(wire: Mapping[str, Any]) -> Check:
    count = wire.get("grpc_to_http")
    unseen = "HTTP at the gRPC port cannot be seen: gRPC hangs up on it without a word"
    if not isinstance(count, int) or count <= 0:
        return Check("protocol", OK, f"no gRPC came to the HTTP port ({unseen})")
    message = f"gRPC came to the HTTP port {count} times since {wire['since']}"
    return Check(
        "protocol", PROBLEM, message, "set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, or the gRPC port"
    )


def _client(client: Mapping[str, Any]) -> Iterator[Check]:
    name = str(client.get("service") or "(no service.name)")
    if scope := client.get("scope"):
        name = f"{name}, {scope}"
    items, lost = _counts(client.get("items")), _counts(client.get("lost"))
    if lost:
        message = f"{name}: its SDK dropped {_listed(lost)}"
        yield Check(
            "lost", PROBLEM, message, "raise its limits (OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT and the like)"
        )
    if bad := items.get("bad"):
        message = f"{name}: {bad} items could not be read"
        yield Check("lost", PROBLEM, message, "each has left a mark in its run, or a line in metrics.jsonl")
    lag = client.get("lag_s")
    if isinstance(lag, int | float) and lag < -AHEAD_S:
        yield Check(
            "clock", PROBLEM, f"{name}: its clock is {-lag:.1f} s ahead", "look at its synchronisation"
        )
    elif isinstance(lag, int | float) and lag > LATE_S:
        yield Check("clock", NOTE, f"{name}: nothing came less than {lag:.0f} s late, or its clock is behind")
    yield Check("clients", NOTE, f"{name}: {_listed(items) or 'nothing'}")
    unmapped = _counts(client.get("unmapped"))
    if unmapped:
        most = dict(sorted(unmapped.items(), key=lambda one: -one[1])[:SHOWN])
        more = f" and {len(unmapped) - SHOWN} more" if len(unmapped) > SHOWN else ""
        yield Check("not mapped", NOTE, f"{name}: {_listed(most)}{more}")


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" if name in _WORDS else f"{name} ({count})"
                     for name, count in counts.items() if count)  # fmt: skip


_WORDS: Final = frozenset(
    {"spans", "logs", "points", "bad", "unused", "no_convention", "attributes", "events", "links"}
)


def _counts(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    return {str(name): count for name, count in value.items() if type(count) is int and count > 0}
