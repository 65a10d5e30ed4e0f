"""One connected Unix stream socket that takes whole lines without blocking and gives frames back.

A line the kernel took in part stays here as `tail` and goes out before anything else: lines are never mixed.
"""

from __future__ import annotations

import errno
import socket

from agentrund_client._wire import Frame, decode

# Kernels give less where wmem_max says so. More room means more that survives the agent's death while the
# collector is busy: 6,500 events of 300 bytes, against 170 with the default.
SEND_BUFFER = 4 << 20
# A frame of the collector is a few hundred bytes; a peer that sends megabytes without a newline is none.
_MAX_FRAME = 1 << 20
# A peer that goes away must not signal the agent (applications do restore SIGPIPE's default).
_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0) | socket.MSG_DONTWAIT
_NOT_OURS = {errno.EBADF, errno.ENOTSOCK}


class Channel:
    """A connection to the collector: OSError when the peer is gone, BlockingIOError when it is busy."""

    def __init__(self, path: str) -> None:
        """Connect, at once or not at all: connecting to a Unix socket never waits when non-blocking."""
        self.tail = b""
        self._partial = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)  # close-on-exec by default (PEP 446)
        try:
            self._socket.setblocking(False)  # noqa: FBT003
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            self._socket.connect(path)
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """The descriptor to poll; -1 once closed."""
        return self._socket.fileno()

    def send(self, line: bytes) -> None:
        """Hand over one line, or several whole ones. BlockingIOError: nothing was taken, offer it again."""
        if self.tail:
            self.send_tail()
        taken = self._socket.send(line, _FLAGS)
        if taken < len(line):
            self.tail = line[taken:]

    def send_tail(self) -> None:
        """Go on with a line taken in part; BlockingIOError while the kernel's buffer is full."""
        while self.tail:
            self.tail = self.tail[self._socket.send(self.tail, _FLAGS) :]

    def receive(self) -> list[Frame] | None:
        """The frames that are there to read, possibly none; None when the peer has closed."""
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return []
        if not data:
            return None
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        if len(self._partial) > _MAX_FRAME:
            return None
        return [decode(line) for line in lines if line]

    def close(self, fault: OSError | None = None) -> None:
        """Close; a descriptor that the application closed itself is let go, it may be another file now."""
        if fault is not None and fault.errno in _NOT_OURS:
            self._socket.detach()
        else:
            self._socket.close()
