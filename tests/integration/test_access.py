"""Who may connect and read: us, root, the members of a group that was named, and nobody else."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import pytest

from support.daemon import Daemon
from support.other_uid import UID, as_other, impossible, reachable_folder
from support.otlp_build import span, traces
from support.otlp_send import send
from support.raw_client import RawClient
from support.run_folder import CRASHED, RUN, write_run
from support.waiting import until

other_user = pytest.mark.skipif(bool(impossible()), reason=impossible())
GROUP, ELSEWHERE = 65432, 65433
MEMBERS = {"supplementary": as_other(groups=(ELSEWHERE, GROUP)), "primary": as_other(gid=GROUP)}
OUTSIDER = as_other(groups=(ELSEWHERE,))

TALK = """
import socket, sys
with socket.socket(socket.AF_UNIX) as sock:
    sock.settimeout(20)
    try:
        sock.connect(sys.argv[1])
    except OSError as error:
        sys.exit(type(error).__name__)
    try:
        sock.sendall(sys.argv[2].encode())
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    while data := sock.recv(65536):
        sys.stdout.write(data.decode())
"""


@pytest.fixture
def base():
    with reachable_folder() as folder:
        yield folder


def talk(who: list[str], daemon: Daemon, *frames: dict) -> subprocess.CompletedProcess[str]:
    """Send frames as another user; what comes back until the collector has no more to say."""
    text = "".join(json.dumps(frame) + "\n" for frame in frames)
    command = [*who, sys.executable, "-I", "-S", "-c", TALK, str(daemon.socket), text]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd="/", timeout=60)


STORY = (
    {"op": "hello", "v": 1, "source": "theirs"},
    {"n": 1, "type": "log", "payload": {"message": "hi", "text": "x" * 9000}},
    {"n": 2, "type": "run.end", "status": "ok"},
)


def refused_start(base, *options: str, who: list[str] = ()) -> str:
    """The error line of a collector that does not start."""
    command = [*who, sys.executable, "-m", "agentrund.cli.main", "serve", "--otlp-grpc", "off", *options]
    env = {**os.environ, "HOME": str(base)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=base, env=env, timeout=60)
    assert done.returncode in (2, 4), done.stderr
    what, hint = done.stderr.splitlines()
    assert hint.startswith("  hint: ")
    return what


# -- nobody else ------------------------------------------------------------------------------------


@other_user
def test_another_user_does_not_get_near_it(base):
    with Daemon(base) as daemon:
        assert talk(as_other(), daemon, *STORY).stderr.strip() == "PermissionError"


@other_user
def test_another_user_is_refused_even_where_modes_let_it_in(base):
    with Daemon(base) as daemon:
        daemon.socket.parent.chmod(0o777)
        daemon.socket.chmod(0o777)
        answers = [json.loads(line) for line in talk(as_other(), daemon, *STORY).stdout.splitlines()]
        assert [(a["op"], a["code"]) for a in answers] == [("error", "not_allowed")]
        assert str(UID) in answers[0]["message"]
        assert daemon.run_ids() == []
        with RawClient(daemon.socket) as client:
            assert client.hello()["op"] == "welcome"


@other_user
def test_a_spool_file_of_another_user_is_left_alone(base):
    spool = base / "spool"
    spool.mkdir()
    path = spool / "theirs.jsonl"
    path.write_text("".join(json.dumps(frame) + "\n" for frame in STORY))
    os.chown(path, UID, UID)
    with Daemon(base) as daemon:
        assert daemon.run_ids() == []
        until(lambda: daemon.stderr.read_text().count("it belongs to uid"), "the refusal")
    assert path.exists()


def test_a_folder_others_can_write_is_no_place_for_the_socket(base):
    folder = base / "open"
    folder.mkdir()
    folder.chmod(0o777)
    assert "others can write there" in refused_start(base, "--socket", str(folder / "a.sock"))
    assert list(folder.iterdir()) == []
    if os.geteuid() == 0:
        folder.chmod(0o755)
        os.chown(folder, UID, UID)
        assert f"belongs to uid {UID}" in refused_start(base, "--socket", str(folder / "a.sock"))


def test_too_long_a_socket_names_the_limit_and_where_it_came_from(base):
    error = refused_start(base, "--socket", str(base / ("ü" * 60)))
    assert "flag --socket" in error
    assert "the limit is 1" in error


# -- a group ----------------------------------------------------------------------------------------


@pytest.fixture
def shared(base):
    if os.geteuid() != 0:
        pytest.skip("only root can give files to any group")
    with Daemon(base, group=str(GROUP), otlp_grpc="127.0.0.1:0") as daemon:
        yield daemon


@other_user
@pytest.mark.parametrize("kind", MEMBERS)
def test_a_member_connects_writes_and_reads(shared, kind):
    who = MEMBERS[kind]
    done = talk(who, shared, *STORY)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers[0]["op"] == "welcome", done
    assert answers[-1]["n"] == 2
    until(lambda: [r["status"] for r in shared.rows()] == ["ok"], "the end")
    assert shared.trace()[0]["payload"]["uid"] == UID
    for command in (
        ["runs"],
        ["show", "latest"],
        ["show", "latest", "--detail", "full"],
        ["tail"],
        ["verify"],
        ["status"],
    ):
        line = [*who, sys.executable, "-m", "agentrund.cli.main", *command]
        env = {**shared.env, "AGENTRUND_ROOT": str(shared.root), "AGENTRUND_SOCKET": str(shared.socket)}
        env |= {"HOME": "/nonexistent"}
        read = subprocess.run(line, check=False, capture_output=True, text=True, env=env, cwd="/", timeout=60)
        assert read.returncode == 0, (command, read)
    assert list((shared.run_dir() / "blobs").iterdir())


@other_user
def test_an_outsider_neither_connects_nor_reads(shared):
    with RawClient(shared.socket) as client:
        client.hello()
        for path in (shared.socket.parent, shared.root, shared.root / "runs"):
            assert path.stat().st_mode & 0o007 == 0
    assert talk(OUTSIDER, shared, *STORY).stderr.strip() == "PermissionError"
    listing = subprocess.run([*OUTSIDER, "ls", shared.root], check=False, capture_output=True, cwd="/")
    assert b"denied" in listing.stderr
    # Also where the modes would let it in, the kernel's word on its groups decides.
    shared.socket.parent.chmod(0o755)
    shared.socket.chmod(0o666)
    assert "not_allowed" in talk(OUTSIDER, shared, *STORY).stdout
    assert len(shared.run_ids()) == 1


@other_user
def test_a_member_does_not_command(shared):
    answer = talk(MEMBERS["primary"], shared, {"op": "do", "what": "reindex"}).stdout
    assert json.loads(answer)["code"] == "not_allowed"


def test_modes_of_a_shared_root(shared):
    """Files 0640 and folders 0750 of the group, the collector's own state private."""
    with RawClient(shared.socket) as client:
        client.hello(session_id="s")
        client.send(*STORY[1:])
        client.acked(2)
    send(shared.otlp, "traces", traces(span()))
    until(lambda: [r["status"] for r in shared.rows()].count("ok") == 1, "the end")
    found = {}
    for path in [shared.root, *shared.root.rglob("*")]:
        info = path.lstat()
        if not stat.S_ISLNK(info.st_mode):
            name = path.relative_to(shared.root)
            found[str(name)] = (stat.S_IMODE(info.st_mode) & 0o777, info.st_gid, stat.S_ISDIR(info.st_mode))
    private = {name: seen for name, seen in found.items() if name.startswith(".agentrund")}
    for name in private:
        del found[name]
    assert {mode for mode, _, is_folder in private.values() if is_folder} == {0o700}
    assert {mode for mode, _, is_folder in private.values() if not is_folder} == {0o600}
    assert {mode for mode, _, is_folder in found.values() if is_folder} == {0o750}
    assert {mode for mode, _, is_folder in found.values() if not is_folder} == {0o640}
    assert {gid for _, gid, _ in found.values()} == {GROUP}
    names = {name.rsplit("/", 1)[-1] for name in found}
    assert {"trace.jsonl", "agent.logs", "outline.md", "analytics.json", "meta.json", "index.jsonl",
            "NAVIGATE.md", "blobs", "sessions", "runs"} <= names  # fmt: skip
    doors = [shared.socket.parent, shared.socket, shared.socket.with_suffix(".json")]
    assert [(p.stat().st_mode & 0o777, p.stat().st_gid) for p in doors] == [
        (0o750, GROUP), (0o660, GROUP), (0o640, GROUP),
    ]  # fmt: skip
    assert shared.cli("verify").returncode == 0


def test_runs_from_before_stay_private_and_remade_files_are_the_groups(base):
    if os.geteuid() != 0:
        pytest.skip("only root can give files to any group")
    with Daemon(base) as daemon, RawClient(daemon.socket) as client:
        client.hello()
        client.send(*STORY[1:])
        client.acked(2)
        until(lambda: [r["status"] for r in daemon.rows()] == ["ok"], "the end")
    run = daemon.run_dir()
    daemon.env["AGENTRUND_GROUP"] = str(GROUP)
    daemon.socket.parent.chmod(0o711)
    with daemon:
        daemon.start()
        assert run.stat().st_mode & 0o777 == 0o700
        assert (daemon.root / "index.jsonl").stat().st_mode & 0o777 == 0o640
        with RawClient(daemon.socket) as client:
            client.hello("another")
            client.send(*STORY[1:])
            client.acked(2)
        until(lambda: [r["status"] for r in daemon.rows()] == ["ok", "ok"], "the end")
    last = daemon.run_dir(daemon.run_ids()[-1])
    before = os.umask(0o077)
    try:
        for command in (["rebuild", last.name], ["reindex"]):
            done = daemon.cli(*command)
            assert done.returncode == 0, done.stderr
    finally:
        os.umask(before)
    for path in (last / "outline.md", daemon.root / "index.jsonl"):
        assert (path.stat().st_mode & 0o777, path.stat().st_gid) == (0o640, GROUP)


def test_a_group_that_does_not_exist_is_named(base):
    assert "there is no group `no-such-group`" in refused_start(base, "--group", "no-such-group")


@other_user
def test_a_group_we_are_not_in_is_named(base):
    error = refused_start(base, "--group", str(GROUP), who=as_other())
    assert f"uid {UID} is not in group `{GROUP}`" in error


# -- modes ------------------------------------------------------------------------------------------


def test_everything_is_private_whatever_the_umask(base):
    """Trace, blobs, derived files, intake, quarantine, lock, socket, discovery file, spool."""
    torn = write_run(base / "root", CRASHED)
    with (torn / "trace.jsonl").open("ab") as file:
        file.write(b'{"run_id":"torn')
    for path in [base / "root", *(base / "root").rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o700 if path.is_dir() else 0o600)
    (base / "spool").mkdir(mode=0o700)
    (base / "spool" / "bad.jsonl").write_text("no hello\n")
    with Daemon(base, wrapper=["sh", "-c", 'umask 0; exec "$@"', "sh"], otlp_grpc="127.0.0.1:0") as daemon:
        with RawClient(daemon.socket) as client:
            client.hello(session_id="s")
            client.send(*STORY[1:])
            client.acked(2)
        send(daemon.otlp, "traces", traces(span()))
        assert daemon.cli("rebuild", RUN).returncode == 0
        until(lambda: [r["status"] for r in daemon.rows()].count("ok") == 1, "the end")
        seen = [daemon.socket.parent, *daemon.socket.parent.iterdir(), daemon.root, *daemon.root.rglob("*")]
        modes = {str(path.relative_to(base)): path.lstat().st_mode for path in seen if not path.is_symlink()}
    assert any("quarantine/" in name for name in modes)
    assert any("intake/" in name for name in modes)
    assert any("blobs/" in name for name in modes)
    for name, mode in modes.items():
        assert stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600), name
