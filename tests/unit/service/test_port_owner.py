"""Who listens on a port is named; who does not is not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agentrund.service import port_owner, socket_owner

CHILD = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""


def me():
    return f"pid {os.getpid()} ({Path('/proc/self/comm').read_text().strip()})"


def test_a_child_that_listens():
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        port = int(child.stdout.readline())
        name = Path(f"/proc/{child.pid}/comm").read_text().strip()
        assert port_owner.owner("127.0.0.1", port) == f"pid {child.pid} ({name})"
        child.stdin.close()
        child.wait(20)
    assert port_owner.owner("127.0.0.1", port) is None


@pytest.mark.parametrize(
    ("listens", "wanted", "is_named"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "localhost", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.2", "127.0.0.1", False),
        ("::1", "::1", True),
        ("::1", "localhost", True),
        ("::1", "127.0.0.1", False),
        ("::", "127.0.0.1", True),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
    ],
)
def test_addresses(listens, wanted, is_named):
    family = socket.AF_INET6 if ":" in listens else socket.AF_INET
    try:
        server = socket.socket(family)
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind((listens, 0))
    except OSError as error:
        pytest.skip(f"this host has no {listens}: {error}")
    with server:
        port = server.getsockname()[1]
        assert port_owner.owner(wanted, port) is None
        server.listen()
        assert port_owner.owner(wanted, port) == (me() if is_named else None)


def test_a_connection_is_no_listener():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as peer,
    ):
        assert port_owner.owner("127.0.0.1", peer.getsockname()[1]) is None


def test_a_process_that_cannot_be_seen(monkeypatch):
    monkeypatch.setattr(socket_owner, "holder", lambda entry, first: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        owner = port_owner.owner("127.0.0.1", server.getsockname()[1])
    assert owner == f"another process of uid {os.getuid()}"
