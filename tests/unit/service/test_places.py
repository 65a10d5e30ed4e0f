"""Default places, and what is refused about them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from agentrund.model.errors import Unavailable, UsageError
from agentrund.service import places


def test_root_of_a_person_is_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert places.default_root({"SYSTEMD_EXEC_PID": "1"}) == tmp_path / ".runs"


def test_root_of_a_service_is_its_state_folder(monkeypatch):
    env = {"SYSTEMD_EXEC_PID": str(os.getpid()), "HOME": "/home/ann"}
    assert places.default_root({**env, "STATE_DIRECTORY": "/var/lib/x:/y"}) == Path("/var/lib/x")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert places.default_root(env) == Path("/home/ann/.local/state/agentrund")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert places.default_root(env) == Path("/var/lib/agentrund")


def test_socket_candidates_in_the_order_of_the_protocol(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = [str(p) for p in places.socket_candidates({"XDG_RUNTIME_DIR": "/run/user/1000"})]
    assert found == [
        "/run/user/1000/agentrund/agentrund.sock",
        "/run/agentrund/agentrund.sock",
        "/tmp/agentrund-1000/agentrund.sock",
    ]


def test_first_candidate_that_can_be_made_is_taken_and_private(tmp_path):
    path = places.listen_socket(None, {"XDG_RUNTIME_DIR": str(tmp_path)})
    assert path == tmp_path / "agentrund" / "agentrund.sock"
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_loose_folder_of_ours_is_closed(tmp_path):
    (tmp_path / "agentrund").mkdir(mode=0o755)
    path = places.listen_socket(None, {"XDG_RUNTIME_DIR": str(tmp_path)})
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("what", ["link", "file"])
def test_something_else_in_the_folders_place_is_passed_over(tmp_path, monkeypatch, what):
    (tmp_path / "other").mkdir()
    if what == "link":
        (tmp_path / "agentrund").symlink_to(tmp_path / "other")
    else:
        (tmp_path / "agentrund").touch()
    monkeypatch.setattr(
        places,
        "socket_candidates",
        lambda env: [tmp_path / "agentrund" / "a.sock", tmp_path / "second" / "a.sock"],
    )
    assert places.listen_socket(None, {}) == tmp_path / "second" / "a.sock"


def test_a_folder_of_another_user_is_named(tmp_path, monkeypatch):
    (tmp_path / "agentrund").mkdir()
    monkeypatch.setattr(places, "socket_candidates", lambda env: [tmp_path / "agentrund" / "a.sock"])
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(Unavailable, match="belongs to uid"):
        places.listen_socket(None, {})


def test_too_long_a_path_names_the_limit(tmp_path):
    with pytest.raises(UsageError, match="the limit is 1"):
        places.listen_socket(tmp_path / ("x" * 120), {})


def test_the_limit_is_the_kernels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    longest = "x" * places.SOCKET_PATH_MAX
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(longest)
    with socket.socket(socket.AF_UNIX) as sock, pytest.raises(OSError):
        sock.bind(longest + "xx")


def test_the_limit_counts_bytes(tmp_path):
    with pytest.raises(UsageError, match=r"has 1[0-9][0-9] bytes, the limit is 1"):
        places.check_length(Path("/" + "ü" * 70))


def test_a_usual_place_that_is_too_long_is_passed_over(tmp_path, monkeypatch):
    long, short = tmp_path / ("x" * 110) / "a.sock", tmp_path / "a" / "a.sock"
    monkeypatch.setattr(places, "socket_candidates", lambda env: [long, short])
    assert places.listen_socket(None, {}) == short
    assert not long.parent.exists()
    monkeypatch.setattr(places, "socket_candidates", lambda env: [long])
    with pytest.raises(Unavailable, match="the limit is 1"):
        places.listen_socket(None, {})


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o722])
def test_a_folder_that_others_can_write_is_refused(tmp_path, mode):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(Unavailable, match=f"mode {mode:04o}: others can write there"):
        places.listen_socket(folder / "a.sock", {})
    assert folder.stat().st_mode & 0o7777 == mode


def test_a_named_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    if tmp_path.stat().st_uid == 0:
        os.chown(tmp_path, 4243, -1)
    with pytest.raises(Unavailable, match="belongs to uid"):
        places.listen_socket(tmp_path / "a.sock", {})


@pytest.mark.parametrize("named", [True, False])
def test_a_group_may_enter_the_folder_and_not_write_in_it(tmp_path, named):
    gid = os.getegid()
    if named:
        path = places.listen_socket(tmp_path / "a" / "b.sock", {}, gid)
    else:
        path = places.listen_socket(None, {"XDG_RUNTIME_DIR": str(tmp_path)}, gid)
    found = path.parent.stat()
    assert (found.st_mode & 0o7777, found.st_gid) == (0o750, gid)


def test_a_named_folder_that_the_group_cannot_enter_is_refused(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    with pytest.raises(Unavailable, match="cannot enter"):
        places.listen_socket(folder / "a.sock", {}, os.getegid())


def test_a_named_socket_gets_its_folder(tmp_path):
    path = tmp_path / "a" / "b.sock"
    assert places.listen_socket(path, {}) == path
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_another_starter_makes_at_the_same_time_is_good(tmp_path, monkeypatch):
    path = tmp_path / "a" / "b.sock"
    path.parent.mkdir(mode=0o700)
    monkeypatch.setattr(Path, "exists", lambda _path: False)
    assert places.listen_socket(path, {}) == path


def test_clients_take_the_first_socket_that_exists(tmp_path):
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    (tmp_path / "agentrund").mkdir()
    path = tmp_path / "agentrund" / "agentrund.sock"
    path.touch()
    assert places.find_socket(None, env) != path
    path.unlink()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        assert places.find_socket(None, env) == path
    assert places.find_socket(Path("/named"), env) == Path("/named")


@pytest.mark.parametrize(
    ("sock", "file"), [("/r/a.sock", "/r/a.json"), ("/r/a", "/r/a.json"), ("/r/a.b", "/r/a.b.json")]
)
def test_discovery_path(sock, file):
    assert places.discovery_path(Path(sock)) == Path(file)
