"""From the address of an OTLP client to its process, looked up once per connection."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import OrderedDict
from typing import Final

from agentrund.model.errors import Overloaded
from agentrund.model.otlp import Peer
from agentrund.model.source import Identity
from agentrund.service import socket_owner
from agentrund.service.process_watch import boot_id, start_time

_REMEMBERED: Final = 1024
"""Connections remembered; a look-up costs some milliseconds, an entry some hundred bytes."""
_RECENT: Final = 16
RETRY_S: Final = 1.0
_LOOKS: Final = 3
_DYING_S: Final = 0.02


_Connection = tuple[str, int, int]
"""Its host, its port and ours: a port may be used for one connection to each of our doors."""


class PeerFinder:
    """Finds who holds the other end of a loopback connection."""

    def __init__(self) -> None:
        self._known: OrderedDict[_Connection, Identity] = OrderedDict()
        self._looking: dict[_Connection, asyncio.Future[Identity | None]] = {}
        self._boot_id = boot_id()

    async def find(self, peer: Peer, *, afresh: bool = False) -> Peer:
        """The peer with its process, as far as the kernel tells. Unchanged for other hosts.

        ``afresh``: by what the kernel says now, and nothing that is remembered of its port.

        Raises Overloaded where there is no descriptor left to look with.
        """
        if peer.host is None or peer.port is None:
            # gRPC has no address any more for a call that was given up before it was looked at.
            return dataclasses.replace(peer, hung_up=True)
        if not socket_owner.is_local(peer.host):
            return peer
        try:
            return await self._find_local(peer, (peer.host, peer.port, peer.our_port), afresh=afresh)
        except OSError as error:
            # Who it is must be known before anything is taken from it: it sends again.
            raise Overloaded(f"cannot look at your process now: {error.strerror}", retry_s=RETRY_S) from error

    async def _find_local(self, peer: Peer, key: _Connection, *, afresh: bool) -> Peer:
        identity = None if afresh else self._known.get(key)
        if identity is None or not _lives(identity):
            # A port is used again by the next connection: only a living owner is remembered.
            found = await self._look_up_once(key)
            if found is None and identity is None:
                return dataclasses.replace(peer, hung_up=True)
            # Nobody holds it now: these are the last words of the process that did.
            identity = found or identity or Identity()
        return dataclasses.replace(peer, identity=identity)

    async def _look_up_once(self, key: _Connection) -> Identity | None:
        """What the kernel says of a connection; a hundred requests of it at once ask once."""
        looking = self._looking.get(key)
        if looking is None:
            loop = asyncio.get_running_loop()
            looking = self._looking[key] = loop.run_in_executor(None, self._look_up, *key[1:])
            looking.add_done_callback(lambda found: self._note(key, found))
        return await looking

    def _note(self, key: _Connection, found: asyncio.Future[Identity | None]) -> None:
        del self._looking[key]
        if found.cancelled() or found.exception() is not None:
            return
        identity = found.result()
        if identity is None:
            return
        self._known[key] = identity
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _look_up(self, port: int, our_port: int) -> Identity | None:
        """Who holds the other end, and whose it is; None where nobody holds it any more."""
        recent = list(
            dict.fromkeys(i.pid for i in list(self._known.values())[-_RECENT:] if i.pid is not None)
        )
        uid: int | None = None
        for _ in range(_LOOKS):
            entry = socket_owner.peer_end(port, our_port)
            if entry is None:
                return None
            uid = entry.uid
            pid = socket_owner.holder(entry, recent)
            if pid is not None:
                return Identity(pid, start_time(pid), self._boot_id, uid)
            # Not ours to see; or it is dying, and its socket closes after its list of files is gone.
            time.sleep(_DYING_S)
        # In a pid namespace of its own: its user is known all the same.
        return Identity(uid=uid)


def _lives(identity: Identity) -> bool:
    return identity.pid is not None and start_time(identity.pid) == identity.pid_start
