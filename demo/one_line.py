"""No client at all: open the socket, print a line, close. Any language and any shell can do this."""

from __future__ import annotations

import os
import socket

with socket.socket(socket.AF_UNIX) as sock:
    sock.connect(os.environ["AGENTRUND_SOCKET"])
    sock.sendall(b'{"type":"log","payload":{"level":"info","message":"built in 41 s"}}\n')
