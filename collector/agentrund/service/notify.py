"""Word to the service manager (sd_notify): ready, stopping. Without one, nothing happens."""

from __future__ import annotations

import os
import socket


def ready() -> None:
    """Recovery is done and every door is open."""
    _say(b"READY=1")


def stopping() -> None:
    """The end has begun."""
    _say(b"STOPPING=1")


def _say(what: bytes) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            sock.sendto(what, "\0" + address[1:] if address[0] == "@" else address)
        except OSError:
            # A manager that does not listen any more is no reason to fail.
            return
