"""Who sent a request: known once, kept for its last words, and said where nobody is there any more."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import subprocess
import sys
from contextlib import ExitStack

import pytest

from agentrund.model.errors import Overloaded
from agentrund.model.otlp import Peer
from agentrund.model.source import Identity
from agentrund.service.peer_finder import PeerFinder
from support.other_uid import UID

CHILD = """
import socket, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sys.stdin.read()
"""


SAME_PORT = """
import ast, socket, sys
sock = socket.socket()
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    sock.bind(ast.literal_eval(sys.argv[1]))
    sock.connect(ast.literal_eval(sys.argv[2]))
except OSError:
    sys.exit()
print(flush=True)
sys.stdin.read()
"""
PORTS = 20


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def our_port(server):
    return server.getsockname()[1]


@pytest.fixture
def finder():
    return PeerFinder()


def find(finder: PeerFinder, *peers: Peer, afresh: bool = False) -> list[Peer]:
    async def all_of_them() -> list[Peer]:
        return [await finder.find(peer, afresh=afresh) for peer in peers]

    return asyncio.run(all_of_them())


def test_the_last_words_of_a_process_are_still_its_own(server, our_port, finder):
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(our_port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        accepted, address = server.accept()
        [living] = find(finder, Peer(*address, our_port=our_port))
        child.kill()
        child.wait(20)
        accepted.close()
    [dead] = find(finder, Peer(*address, our_port=our_port))
    assert living.identity.pid == child.pid
    assert (dead.identity, dead.hung_up) == (living.identity, False)
    [nobody] = find(finder, Peer(*address, our_port=our_port), afresh=True)
    assert (nobody.identity, nobody.hung_up) == (Identity(), True), "they let nobody in"


def test_a_connection_that_is_gone_already_has_hung_up(server, our_port, finder):
    with socket.create_connection(server.getsockname()) as client:
        accepted, address = server.accept()
    accepted.close()
    del client
    assert [peer.hung_up for peer in find(finder, Peer(*address, our_port=our_port), Peer())] == [True, True]


def test_without_a_descriptor_to_look_with_a_sender_is_asked_to_come_again(
    server, our_port, finder, monkeypatch
):
    def no_descriptors(_pid):
        raise OSError(errno.EMFILE, "Too many open files")

    with socket.create_connection(server.getsockname()):
        accepted, address = server.accept()
        monkeypatch.setattr("agentrund.service.peer_finder.start_time", no_descriptors)
        with accepted, pytest.raises(Overloaded, match="Too many open files"):
            find(finder, Peer(*address, our_port=our_port))


def test_one_that_is_seen_dying_has_hung_up(server, our_port, finder, monkeypatch):
    with socket.create_connection(server.getsockname()) as client:
        accepted, address = server.accept()

        def nobody(_entry, _first):
            accepted.close()
            client.close()

        monkeypatch.setattr("agentrund.service.socket_owner.holder", nobody)
        [peer] = find(finder, Peer(*address, our_port=our_port))
    assert (peer.identity.pid, peer.hung_up) == (None, True)


def test_another_hosts_connection_is_nothing_we_know_of(finder):
    peer = Peer("192.0.2.1", 4000)
    assert find(finder, peer) == [peer]


def test_a_port_with_a_connection_to_each_of_our_doors_is_told_apart(server, our_port, finder):
    """The kernel lends one port to connections of several programs, as long as they go to several places."""
    with socket.create_server(("127.0.0.1", 0)) as other, ExitStack() as held:
        for _ in range(PORTS):
            one = held.enter_context(socket.create_connection(server.getsockname()))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            command = [sys.executable, "-c", SAME_PORT, repr(one.getsockname()), repr(other.getsockname())]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            held.enter_context(child)
            if child.stdout.readline() == "\n":
                break  # else a stranger has that port too
        there = Peer(*one.getsockname(), our_port=other.getsockname()[1])
        found = find(finder, Peer(*one.getsockname(), our_port=our_port), there)
        assert [peer.identity.pid for peer in found] == [os.getpid(), child.pid]
        child.stdin.close()


def test_a_port_that_another_process_uses_again_is_that_ones_where_it_is_looked_up_afresh(
    server, our_port, finder
):
    with ExitStack() as held:
        for _ in range(PORTS):
            with socket.create_connection(server.getsockname()) as one:
                address = one.getsockname()
                [before] = find(finder, Peer(*address, our_port=our_port))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            command = [sys.executable, "-c", SAME_PORT, repr(address), repr(server.getsockname())]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            held.enter_context(child)
            if child.stdout.readline() == "\n":
                break  # else a stranger has that port
        [after] = find(finder, Peer(*address, our_port=our_port), afresh=True)
        assert [peer.identity.pid for peer in (before, after)] == [os.getpid(), child.pid]
        child.stdin.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_connection_is_of_the_user_who_made_it_whoever_holds_it_too(server, our_port, finder):
    """A program of root's that is started with a connection open, as `su` may be by anybody, answers for none."""
    os.seteuid(UID)
    try:
        client = socket.create_connection(server.getsockname())
    finally:
        os.seteuid(0)
    with client:
        [peer] = find(finder, Peer(*client.getsockname(), our_port=our_port))
    assert (peer.identity.pid, peer.identity.uid) == (os.getpid(), UID)
