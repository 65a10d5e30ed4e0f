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
                assert socket_owner.owner(peer_port, port, []) == child.pid
                assert socket_owner.owner(peer_port, port, [os.getpid(), child.pid]) == child.pid
                child.stdin.close()
                child.wait(20)


def test_a_port_nobody_holds_has_no_owner():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert socket_owner.owner(1, server.getsockname()[1], []) is None


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False), ("x", False)],
)
def test_loopback_is_local(host, local):
    assert socket_owner.is_local(host) is local
