"""The listening socket: never open to others, never taken from the living, nothing else removed."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys

import pytest

from agentrund.model.errors import Unavailable
from agentrund.service.listener import Listener
from support.other_uid import as_other, impossible, reachable_folder

TRIES = 20_000
CONNECT = """
import collections, socket, sys
met = collections.Counter()
print("ready", flush=True)
for _ in range(int(sys.argv[2])):
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(sys.argv[1])
            met["connected"] += 1
        except OSError as error:
            met[type(error).__name__] += 1
print(*met, flush=True)
"""


def bound(path, *, listening=True, kind=socket.SOCK_STREAM):
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(str(path))
    if listening and kind != socket.SOCK_DGRAM:
        sock.listen()
    return sock


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.sock"


def test_made_private_whatever_the_umask_and_removed_at_the_end(path):
    before = os.umask(0)
    try:
        listener = Listener(path)
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        assert os.umask(0) == 0
        listener.close()
    finally:
        os.umask(before)
    assert not path.exists()


@pytest.mark.skipif(bool(impossible()), reason=impossible())
def test_no_other_user_gets_a_foot_in_while_sockets_come_and_go():
    """The folder lets everybody pass: the socket's own mode has to do, from its first moment on.

    A refused connection would be one that was let in, too early for anybody to listen.
    """
    starts = 0
    with reachable_folder() as folder:
        path = folder / "a.sock"
        command = [*as_other(), sys.executable, "-I", "-S", "-c", CONNECT, str(path), str(TRIES)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/") as other:
            assert other.stdout.readline() == "ready\n"
            before = os.umask(0)
            try:
                while other.poll() is None or starts < 200:
                    Listener(path).close()
                    starts += 1
            finally:
                os.umask(before)
            met = set(other.stdout.readline().split())
    assert "PermissionError" in met
    assert met <= {"PermissionError", "FileNotFoundError"}


@pytest.mark.parametrize("what", ["file", "folder", "fifo", "link", "dangling link"])
def test_what_is_no_socket_stays_where_it_is(path, tmp_path, what):
    target = tmp_path / "target"
    if what == "file":
        path.write_text("mine")
    elif what == "folder":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(target)
        if what == "link":
            bound(target).close()
    before = path.lstat()
    with pytest.raises(Unavailable, match="is not a socket"):
        Listener(path)
    assert path.lstat() == before
    assert target.exists() == (what == "link")


def test_a_socket_nobody_listens_at_makes_way(path):
    bound(path).close()
    Listener(path).close()


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
def test_another_programs_socket_is_not_taken(path, kind):
    with bound(path, kind=kind):
        inode = path.lstat().st_ino
        with pytest.raises(Unavailable, match="in use by another program"):
            Listener(path)
        assert path.lstat().st_ino == inode


def test_a_listener_too_busy_to_answer_is_not_taken(path):
    with bound(path, listening=False) as busy:
        busy.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.setblocking(False)
            first.connect(str(path))
            with pytest.raises(Unavailable, match="in use by another program"):
                Listener(path)
        assert path.exists()


def test_another_users_socket_is_not_taken(path, monkeypatch):
    bound(path).close()
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(Unavailable, match="belongs to uid"):
        Listener(path)
    assert path.exists()


def test_a_second_collector_is_told_of_the_first(path):
    listener = Listener(path)
    with pytest.raises(Unavailable, match="served by another collector"):
        Listener(path)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
    listener.close()


def test_what_has_taken_the_sockets_place_outlives_it(path):
    listener = Listener(path)
    path.unlink()
    path.write_text("mine")
    listener.close()
    assert path.read_text() == "mine"


@pytest.mark.parametrize("plant", [os.mkdir, lambda lock: os.symlink("/dev/null", lock)])
def test_a_lock_that_cannot_be_had_is_said(path, plant):
    plant(path.with_name(".a.sock.lock"))
    with pytest.raises(Unavailable, match="cannot make a socket"):
        Listener(path)


def test_for_a_group_it_is_the_groups_and_nobody_elses(path):
    gid = os.getgroups()[0] if os.getgroups() else os.getegid()
    listener = Listener(path, gid)
    found = path.lstat()
    listener.close()
    assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, gid)
