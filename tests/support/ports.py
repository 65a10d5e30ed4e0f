"""Ports for tests that have to know one before anybody listens there."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port that stays ours over restarts, as far as that can be had."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
