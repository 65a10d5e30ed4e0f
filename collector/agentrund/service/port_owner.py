"""Who listens on a TCP port, so that a refusal to bind can name them.

Asks the kernel's tables; for a message only, so a wrong or missing answer does no harm.
"""

from __future__ import annotations

import ipaddress
import sys
from typing import Final

from agentrund.service import socket_owner
from agentrund.service.process_watch import describe

_LISTEN: Final = "0A"
_WORD: Final = 8
"""Hexadecimal digits of the 32 bits that the kernel prints as one number of this machine."""

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def owner(host: str, port: int) -> str | None:
    """Who keeps others from listening on ``host:port``: ``pid 4711 (python)``; None where nobody does.

    ``another process of uid 0`` where that process is not ours to see.
    """
    text = f":{port:04X}"
    for entry in socket_owner.entries(text):
        if entry.state == _LISTEN and entry.local.endswith(text) and _clashes(host, entry.local):
            pid = socket_owner.holder(entry, [])
            return f"another process of uid {entry.uid}" if pid is None else _named(pid)
    return None


def _named(pid: int) -> str:
    name = describe(pid).get("task")
    return f"pid {pid} ({name})" if name else f"pid {pid}"


def _clashes(host: str, local: str) -> bool:
    """Whether somebody who listens on ``local`` (``0100007F:10DD``) is in the way of ``host``."""
    theirs = _address(local.partition(":")[0])
    if theirs.is_unspecified:
        return True
    try:
        ours = ipaddress.ip_address(host)
    except ValueError:
        # A name, of a loopback address most likely.
        return theirs.is_loopback
    return theirs == ours


def _address(digits: str) -> IpAddress:
    words = [int(digits[at : at + _WORD], 16) for at in range(0, len(digits), _WORD)]
    found = ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))
    mapped = getattr(found, "ipv4_mapped", None)
    return found if mapped is None else mapped
