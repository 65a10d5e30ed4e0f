"""A client of the stream protocol with nothing in it: what any language can do with a socket."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, Self

WAIT_S = 20


class RawClient:
    """Sends lines, reads frames; every wait is bounded."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(str(path))
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    def send(self, *frames: dict[str, Any] | bytes) -> None:
        """Send frames (or raw lines) in one piece."""
        lines = [f if isinstance(f, bytes) else json.dumps(f).encode() for f in frames]
        self.sock.sendall(b"\n".join(lines) + b"\n")

    def receive(self) -> dict[str, Any]:
        """The next frame."""
        while b"\n" not in self._buffer:
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def expect(self, op: str) -> dict[str, Any]:
        """The next frame of one kind, others skipped."""
        while True:
            frame = self.receive()
            if frame["op"] == op:
                return frame

    def hello(self, source: str = "src-1", **keys: Any) -> dict[str, Any]:
        """Say hello and wait for the answer."""
        self.send({"op": "hello", "v": 1, "source": source, **keys})
        return self.receive()

    def acked(self, n: int) -> int:
        """Wait until everything up to ``n`` is acknowledged; returns the run's seq at that point."""
        while True:
            frame = self.expect("ack")
            if frame["n"] >= n:
                return frame["seq"]

    def settle(self) -> None:
        """Wait until the collector has taken everything that was sent."""
        self.send({"op": "status"})
        self.expect("status")
