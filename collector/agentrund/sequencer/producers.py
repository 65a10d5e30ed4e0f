"""Which process sent an item, and the source id it gets.

A source id comes from ``service.instance.id``, else from the process, else from the resource. One
id is one process: a second one that claims the same id (a restart too) gets its pid added.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from agentrund.model.event import Json
from agentrund.model.otlp import Peer, Resource
from agentrund.model.source import SOURCE_ID, Identity

HEARTBEAT_LOST: Final = "heartbeat lost"
_HOST_KEYS: Final = "host."
_BY_RESOURCE: Final = "resource-"
_REMEMBERED: Final = 256
"""Processes that have ended, of which something may still come."""


@dataclass(slots=True, eq=False)
class Producer:
    """One sending process. ``exited_at`` and ``exited_ts`` are when it was seen to end, on either clock."""

    id: str
    identity: Identity
    resource: Resource
    last_seen: float
    exited_at: float | None = None
    exited_ts: float | None = None
    cause: str = ""
    since: float = 0.0
    """When it was first heard of."""
    hung_up: bool = False
    """Its process is not known, and its connection was gone at once: it may have died there."""
    beats: bool = False
    """It sends heartbeats, for its process cannot be watched: their end is its end."""

    @property
    def service(self) -> str | None:
        """What the process calls itself."""
        name = self.resource.attributes.get("service.name")
        return name if isinstance(name, str) and name else None


class Producers:
    """All producers seen, by source id."""

    def __init__(self) -> None:
        self._by_claim: dict[str, list[Producer]] = {}
        self._by_id: dict[str, Producer] = {}
        self._gone: deque[tuple[Identity, str, float, float]] = deque(maxlen=_REMEMBERED)

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, source: str) -> Producer:
        """The producer of a source id."""
        return self._by_id[source]

    def of(self, peer: Peer, resource: Resource, now: float) -> Producer:
        """The producer of a resource sent by ``peer``."""
        identity = _identity(peer, resource.attributes)
        claim = _claim(peer, identity, resource.attributes)
        claimants = self._by_claim.get(claim, ())
        for known in claimants:
            if _same_process(known.identity, identity):
                known.last_seen = max(known.last_seen, now)
                if known.identity.pid is None:
                    known.identity = identity
                    self._learn_of_its_end(known, now)
                if len(resource.attributes) > len(known.resource.attributes):
                    known.resource = resource  # a heartbeat may say less of it than its exporter
                known.hung_up = peer.hung_up and known.identity.pid is None
                if known.cause == HEARTBEAT_LOST:
                    # It was cut off, not dead.
                    known.exited_at, known.exited_ts, known.cause = None, None, ""
                return known
        producer = self._add(claim, self._free_id(claim, identity), identity, resource, now)
        producer.hung_up = peer.hung_up and identity.pid is None
        return producer

    def _free_id(self, claim: str, identity: Identity) -> str:
        """The claim, or where another process had it, the claim and the pid."""
        if claim not in self._by_id:
            return claim
        source = f"{claim[:90]}:{identity.pid}"
        return source if source not in self._by_id else f"{source}-{identity.pid_start}"

    def _add(self, claim: str, source: str, identity: Identity, resource: Resource, now: float) -> Producer:
        producer = self._by_id[source] = Producer(source, identity, resource, now, since=now)
        self._by_claim.setdefault(claim, []).append(producer)
        self._learn_of_its_end(producer, now)
        return producer

    def _learn_of_its_end(self, producer: Producer, now: float) -> None:
        """Its process may have been seen to end before it was known to be this one's."""
        for gone, cause, at, ts in self._gone:
            if producer.identity.pid_start is not None and _same_process(gone, producer.identity):
                producer.exited_at, producer.exited_ts, producer.cause = max(at, now), ts, cause

    def restore(self, source: str, identity: Identity, resource: Resource, now: float) -> Producer:
        """Put back a producer that a run's records know."""
        known = self._by_id.get(source)
        if known is not None:
            return known
        claim = _claim(Peer(identity=identity), identity, resource.attributes)
        return self._add(source if claim.startswith(_BY_RESOURCE) else claim, source, identity, resource, now)

    def exited(self, identity: Identity, cause: str, now: float, ts: float) -> list[Producer]:
        """The process of ``identity`` has ended, at ``ts`` epoch seconds; returns its producers.

        It ends once: who looks for it again later knows less of it.
        """
        if any(identity == known for known, *_ in self._gone):
            return []
        gone = [
            p
            for p in self._by_id.values()
            if p.exited_at is None and p.identity.pid is not None and _same_process(p.identity, identity)
        ]
        for producer in gone:
            producer.exited_at, producer.exited_ts, producer.cause = now, ts, cause
        # Its last requests may be on their way through the collector still.
        self._gone.append((identity, cause, now, ts))
        return gone

    def beats_lost(self, now: float, ts: float, timeout_s: float) -> list[Producer]:
        """Those that sent heartbeats and were not heard of for ``timeout_s``: they have ended, at ``ts``."""
        lost = [
            p
            for p in self._by_id.values()
            if p.beats and p.exited_at is None and now - p.last_seen > timeout_s
        ]
        for producer in lost:
            producer.exited_at, producer.exited_ts, producer.cause = now, ts, HEARTBEAT_LOST
        return lost

    def grant(self, now: float) -> None:
        """Nobody could reach us until now: no heartbeat was missed."""
        for producer in self._by_id.values():
            producer.last_seen = max(producer.last_seen, now) if producer.beats else producer.last_seen

    def of_process(self, identity: Identity) -> list[str]:
        """The sources that a process is known under."""
        return [
            p.id
            for p in self._by_id.values()
            if p.identity.pid is not None and _same_process(p.identity, identity)
        ]

    def forget(self, sources: Iterable[str]) -> None:
        """Give producers up that no run needs."""
        gone = {self._by_id.pop(source).id for source in sources}
        if not gone:
            return
        left = {
            claim: [p for p in claimants if p.id not in gone] for claim, claimants in self._by_claim.items()
        }
        self._by_claim = {claim: claimants for claim, claimants in left.items() if claimants}

    def idle_since(self, then: float, most: int) -> list[str]:
        """Sources not heard of since ``then``, and those beyond the ``most`` that were heard of last."""
        by_age = sorted(self._by_id.values(), key=lambda p: p.last_seen)
        return [p.id for n, p in enumerate(by_age) if p.last_seen < then or n < len(by_age) - most]


def _identity(peer: Peer, attributes: Json) -> Identity:
    """The kernel's word, else the sender's own where it can only mean a process of this host."""
    pid = attributes.get("process.pid")
    if peer.identity.pid is None and isinstance(pid, int) and pid > 0 and _is_loopback(peer.host):
        return Identity(pid=pid, pid_from="client")
    return peer.identity


def _claim(peer: Peer, identity: Identity, attributes: Json) -> str:
    instance = attributes.get("service.instance.id")
    if isinstance(instance, str) and instance:
        return instance if SOURCE_ID.fullmatch(instance) else f"instance-{_short(instance)}"
    if identity.pid is not None:
        return f"pid-{identity.pid}" + (f"-{identity.pid_start}" if identity.pid_start is not None else "")
    rest = sorted((k, str(v)) for k, v in attributes.items() if not k.startswith(_HOST_KEYS))
    return f"{_BY_RESOURCE}{_short(repr((peer.host, rest)))}"


def _short(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _same_process(one: Identity, other: Identity) -> bool:
    """Whether two identities may be one process; what one of them does not know does not count."""
    return all(
        a == b or a is None or b is None
        for a, b in (
            (one.pid, other.pid),
            (one.pid_start, other.pid_start),
            (one.boot_id, other.boot_id),
        )
    )


def _is_loopback(host: str | None) -> bool:
    try:
        return host is not None and ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
