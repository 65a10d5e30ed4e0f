"""The kernel names the process at the other end of a loopback connection."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from agentrund.service import socket_owner

CHILD = """
import socket, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print(sock.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_the_owner_of_a_childs_connection_is_the_child():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child:
            accepted, _ = server.accept()
            with accepted:
                peer_port = int(child.stdout.readline())
                end = socket_owner.peer_end(peer_port, port)
                assert socket_owner.holder(end, []) == child.pid
                assert socket_owner.holder(end, [os.getpid(), child.pid]) == child.pid
                child.stdin.close()
                child.wait(20)


def test_a_connection_nobody_holds_has_no_end():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert socket_owner.peer_end(1, server.getsockname()[1]) is None


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False), ("x", False)],
)
def test_loopback_is_local(host, local):
    assert socket_owner.is_local(host) is local
