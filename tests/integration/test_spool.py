"""Spool files of the dead: what is good in them is taken in once, what is not is kept apart and said once."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path

import pytest

from support.daemon import Daemon
from support.processes import Agent
from support.raw_client import RawClient
from support.waiting import until


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path) as running:
        yield running


def log(n: int, text: str = "x"):
    return {"n": n, "type": "log", "payload": {"level": "info", "message": text}}


def healthy(daemon: Daemon) -> None:
    done = daemon.cli("verify")
    assert done.returncode == 0, done.stdout


def put(daemon: Daemon, name: str, data: bytes) -> Path:
    """A spool file; it gets its name when it is whole."""
    folder = daemon.base / "spool"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / name
    (folder / ".new").write_bytes(data)
    (folder / ".new").rename(path)
    return path


def spool(daemon: Daemon, source: str, *frames) -> None:
    put(daemon, f"{source}.jsonl", b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))


def test_an_agent_that_ran_while_nobody_listened_loses_nothing(daemon):
    daemon.stop()
    hello = {"op": "hello", "source": "gone", "session_id": "s", "pid": 4242, "task": "t"}
    spool(
        daemon,
        "gone",
        hello,
        {**log(1), "ts": 1.79e9},
        {**log(2), "ts": 1.79e9 + 1},
        {"n": 3, "type": "run.end", "status": "ok", "ts": 1.79e9 + 2},
    )
    daemon.start()
    until(lambda: daemon.rows() and daemon.rows()[0]["status"] == "ok", "the end")
    assert [r["type"] for r in daemon.trace()] == ["run.start", "log", "log", "run.end"]
    assert daemon.trace()[0]["ts"] == 1.79e9
    assert os.listdir(daemon.base / "spool") == []
    healthy(daemon)


def test_an_orphan_without_an_end_is_a_crash(daemon):
    spool(
        daemon,
        "gone",
        {"op": "hello", "source": "gone", "pid": 4242},
        log(1),
        {"n": 2, "type": "tool.call", "name": "f", "span": "1"},
    )
    until(lambda: daemon.rows() and daemon.rows()[0]["status"] == "crashed", "the crash")
    assert "(process exited) ----" in (daemon.run_dir() / "agent.logs").read_text()
    assert "     open: #0003 f (tool.call, " in (daemon.run_dir() / "agent.logs").read_text()


def test_what_the_dead_wrote_down_is_read_before_they_are_judged(daemon):
    with Agent(
        daemon.socket,
        "client.hello('a', session_id='s'); client.send({'n': 1, 'type': 'log'}); client.acked(1); ready()",
    ) as agent:
        agent.wait_ready()
        daemon.kill()
        agent.kill()
    spool(
        daemon,
        "a",
        {"op": "hello", "source": "a", "session_id": "s"},
        log(1),
        log(2),
        {"n": 3, "type": "run.end", "status": "ok"},
    )
    daemon.start()
    until(lambda: daemon.rows()[0]["status"] == "ok", "a good end")
    assert [r["type"] for r in daemon.trace()] == ["run.start", "log", "log", "run.end"]


def test_a_file_whose_writer_lives_is_left_alone(daemon):
    spool(daemon, "living", {"op": "hello", "source": "living"}, log(1))
    path = daemon.base / "spool" / "living.jsonl"
    # A second orphan behind it in the alphabet tells when the folder has been looked at.
    with path.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        spool(daemon, "zzz", {"op": "hello", "source": "zzz", "session_id": "z"}, log(1))
        until(lambda: [r for r in daemon.rows() if r["session_id"] == "z"], "the orphan")
        assert len(daemon.rows()) == 1
        assert path.exists()
    until(lambda: len(daemon.rows()) == 2, "the file that was let go")


def test_damaged_spool_lines_cost_only_themselves(daemon):
    lines = [
        b'{"op":"hello","source":"x","session_id":"s","run_id":"20200101_000000_0000"}',
        b'{"n":1,"type":"log"}',
        b"\x00garbage",
        b'{"n":3,"type":"log"}',
        b'{"n":4,"ty',
    ]
    path = put(daemon, "x.jsonl", b"\n".join(lines))
    until(lambda: daemon.rows() and daemon.rows()[0]["status"] == "crashed", "taken in")
    numbers = [r["src"].get("n") for r in daemon.trace() if r["type"] == "log" and "n" in (r["src"] or {})]
    assert numbers == [1, 3, 4]
    assert [r["payload"].get("refused") for r in daemon.trace() if r["type"] == "log"][-1] == "bad_json"
    assert not path.exists()
    healthy(daemon)


def test_a_spool_file_without_a_place_is_kept(daemon):
    spool(daemon, "bad", {"op": "hello", "source": "bad", "tags": "no array"}, log(1))
    kept = daemon.root / ".agentrund" / "quarantine"
    until(lambda: kept.exists() and list(kept.iterdir()), "the quarantine")
    [file] = kept.iterdir()
    assert file.read_text().count("\n") == 2
    until(lambda: not list((daemon.base / "spool").iterdir()), "the removal")


def test_a_spool_file_of_a_source_in_use_waits(daemon):
    with RawClient(daemon.socket) as client:
        client.hello("used", session_id="s")
        spool(daemon, "used", {"op": "hello", "source": "used"}, log(1))
        spool(daemon, "zzz", {"op": "hello", "source": "zzz", "session_id": "z"}, log(1))
        until(lambda: [r for r in daemon.rows() if r["session_id"] == "z"], "the other orphan")
        assert (daemon.base / "spool" / "used.jsonl").exists()


# -- what does not belong there -------------------------------------------------------------------


HELLO = b'{"op":"hello","source":"x","session_id":"s","pid":4242}'
EVENTS = [b'{"n":%d,"type":"log","payload":{"message":"m%d"}}' % (n, n) for n in range(1, 6)]


def looked_at(daemon: Daemon) -> None:
    """Wait until the folder has been gone through from now on, to the end of the alphabet, twice."""
    for turn in range(2):
        probe = put(daemon, f"zz-probe-{turn}.jsonl", b'{"op":"hello","source":"zz-probe"}\n')
        until(lambda probe=probe: not probe.exists(), "a look at the folder")


def told(daemon: Daemon, name: str) -> int:
    """How many lines of the collector's own log speak of something."""
    return sum(name in line for line in daemon.stderr.read_text().split("\n"))


def messages(daemon: Daemon, source: str = "x") -> list[str]:
    found = [r for run in daemon.run_ids() for r in daemon.trace(run)]
    return [r["payload"]["message"] for r in found if r.get("src", {}).get("id") == source]


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ([HELLO, *EVENTS], "m1 m2 m3 m4 m5"),
        ([HELLO, *EVENTS[:4], EVENTS[4][:20]], "m1 m2 m3 m4"),
        ([HELLO, EVENTS[0], b"\0" * 5000 + EVENTS[1], b"\0" * 300, *EVENTS[2:]], "m1 m2 m3 m4 m5"),
        ([HELLO, EVENTS[0], b"\0" * 5000, *EVENTS[2:]], "m1 m3 m4 m5"),
        ([HELLO, EVENTS[0], EVENTS[1].replace(b"{", b"z"), *EVENTS[2:]], "m1 m3 m4 m5"),
        ([HELLO, EVENTS[0], EVENTS[1] + EVENTS[2], *EVENTS[3:]], "m1 m4 m5"),
        ([HELLO, *EVENTS, *EVENTS], "m1 m2 m3 m4 m5"),
        ([HELLO, HELLO, b'{"op":"hello","source":"other"}', *EVENTS], "m1 m2 m3 m4 m5"),
        ([HELLO, b'{"op":"do","what":"reindex"}', b'{"op":"status"}', *EVENTS], "m1 m2 m3 m4 m5"),
        ([HELLO, b"\xef\xbb\xbf" + EVENTS[0] + b"\r", b"", *EVENTS[1:]], "m1 m2 m3 m4 m5"),
        ([HELLO, EVENTS[0], b'{"n":2,"type":"log","payload":{"message":"' + b"x" * 70_000 + b'"}}', *EVENTS[2:]],
         "m1 m3 m4 m5"),
        ([HELLO.replace(b"4242", b"1"), *EVENTS], "m1 m2 m3 m4 m5"),
    ],
    ids=["whole", "torn", "NULs", "NULs-for-a-line", "bit-flip", "glued", "twice", "hellos", "controls", "bom", "long", "pid-1"],
)  # fmt: skip
def test_what_is_good_is_taken_and_what_is_not_leaves_a_mark(tmp_path, lines, kept):
    with Daemon(tmp_path, max_line_bytes="65536") as daemon:
        path = put(daemon, "x.jsonl", b"\n".join(lines))
        until(lambda: not path.exists(), "the file was taken")
        until(lambda: [r for r in daemon.rows() if r["status"] == "crashed"], "the end")
        found = messages(daemon)
        assert [m for m in found if m in kept.split()] == kept.split()
        records = daemon.trace()
        marks = [r for r in records if r["payload"].get("refused") or r["payload"].get("lost")]
        assert bool(marks) == (len(kept.split()) < 5 or b'"op"' in b"".join(lines[1:]))
        assert {r["payload"].get("source", "x") for r in records} == {"x"}
        healthy(daemon)


UNPLACED = {
    "text": b"no hello\n",
    "zeros": b"\0" * 100_000,
    "binary": bytes(range(256)) * 400,
    "no-hello": EVENTS[0] + b"\n",
    "torn-hello": HELLO[:30],
    "bad-source": b'{"op":"hello","source":"../../x"}\n' + EVENTS[0],
    "brackets": b"[" * 300_000,
    "odd\nname": b"odd",
    "n" * 240: b"long",
}


def test_what_cannot_be_placed_is_moved_away_whole(daemon):
    for name, data in UNPLACED.items():
        put(daemon, f"{name}.jsonl", data)
    until(lambda: not os.listdir(daemon.base / "spool"), "the files were moved")
    kept = [path.read_bytes() for path in (daemon.root / ".agentrund" / "quarantine").iterdir()]
    assert sorted(kept) == sorted(UNPLACED.values())
    assert [told(daemon, name.partition("\n")[0] + ".") for name in UNPLACED if "\n" not in name] == [1] * 8
    assert told(daemon, "refused") == len(UNPLACED)
    assert daemon.run_ids() == []


def test_an_empty_file_is_somebodys_beginning_and_removed_when_nothing_comes_of_it(daemon):
    path = put(daemon, "x.jsonl", b"")
    looked_at(daemon)
    assert path.exists()
    os.utime(path, (0, 0))
    until(lambda: not path.exists(), "the file was removed")
    assert told(daemon, "x.jsonl") == 0


def plant(path: Path, what: str) -> None:
    outside = path.parent.parent / "outside"
    outside.write_bytes(HELLO + b"\n" + EVENTS[0] + b"\n")
    match what:
        case "symlink":
            path.symlink_to(outside)
        case "dangling":
            path.symlink_to("nowhere")
        case "hard link":
            os.link(outside, path)
        case "FIFO":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))
        case "socket":
            with socket.socket(socket.AF_UNIX) as sock:
                sock.bind(str(path))
        case "other uid":
            path.write_bytes(outside.read_bytes())
            os.chown(path, 12345, -1)
        case "loop":
            path.symlink_to(path)


PLANTED = ["symlink", "dangling", "hard link", "FIFO", "folder", "socket", "loop"]
PLANTED_BY_ROOT = ["device", "other uid"]


def test_what_is_not_ours_is_left_alone_and_said_once(daemon):
    kinds = PLANTED + (PLANTED_BY_ROOT if os.geteuid() == 0 else [])
    folder = put(daemon, "seen.jsonl", b'{"op":"hello","source":"seen"}\n').parent
    for what in kinds:
        plant(folder / f"{what}.jsonl", what)
    before = {what: os.lstat(folder / f"{what}.jsonl") for what in kinds}
    looked_at(daemon)
    for what, seen in before.items():
        now = os.lstat(folder / f"{what}.jsonl")
        assert (what, now.st_ino, now.st_mode) == (what, seen.st_ino, seen.st_mode)
    assert (daemon.base / "outside").read_bytes().startswith(HELLO)
    assert [told(daemon, f"{what}.jsonl") for what in kinds] == [1] * len(kinds)
    assert messages(daemon) == []


def test_a_folder_of_somebody_else_is_left_alone(daemon):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    path = put(daemon, "x.jsonl", HELLO + b"\n")
    os.chown(path.parent, 12345, -1)
    until(lambda: told(daemon, "spool folder"), "a word about it")
    assert path.exists()
    os.chown(path.parent, 0, -1)
    until(lambda: not path.exists(), "the file was taken after all")
    assert told(daemon, "spool folder") == 1


def test_a_copy_of_a_file_under_another_name_adds_nothing(daemon):
    data = b"\n".join([HELLO, *EVENTS, b""])
    for name in ("x.jsonl", "x (copy).jsonl", "a-copy.jsonl"):
        path = put(daemon, name, data)
        until(lambda path=path: not path.exists(), "the file was taken")
    assert messages(daemon) == ["m1", "m2", "m3", "m4", "m5"]
    assert len(daemon.run_ids()) == 1
    healthy(daemon)


def test_a_file_somebody_writes_to_without_its_lock_is_not_lost(daemon):
    daemon.stop()
    path = put(daemon, "x.jsonl", HELLO + b"\n")
    n = 0
    daemon.start()
    while path.exists() and n < 300:
        n += 1
        with path.open("ab") as file:
            file.write(b'{"n":%d,"type":"log","payload":{"message":"m%d"}}\n' % (n, n))
    until(lambda: not path.exists() or None, "the file was taken")
    found = messages(daemon)
    assert found == [f"m{k}" for k in range(1, len(found) + 1)]
    healthy(daemon)


def test_what_a_file_lost_by_waiting_is_told_in_its_run(daemon):
    spool(
        daemon,
        "old",
        {"op": "hello", "source": "old"},
        {"op": "lost", "from": 1, "to": 50},
        {"n": 51, "type": "run.end", "status": "ok"},
    )
    until(lambda: daemon.rows() and daemon.rows()[0]["status"] == "ok", "the end")
    (mark,) = [r for r in daemon.trace() if r["type"] == "log"]
    assert (mark["status"], mark["payload"]["lost"]) == ("WARNING", 50)
    assert json.loads((daemon.run_dir() / "analytics.json").read_bytes())["dropped"]["lost"] == 50
    healthy(daemon)


# -- how much of it there is ----------------------------------------------------------------------


def test_readiness_waits_only_for_what_may_belong_to_an_open_run(daemon):
    with Agent(
        daemon.socket,
        "client.hello('a', session_id='open'); client.send({'n': 1, 'type': 'log'}); client.acked(1); ready()",
    ) as agent:
        agent.wait_ready()
        daemon.kill()
        agent.kill()
    for n in range(150):
        spool(
            daemon,
            f"b{n:03}",
            {"op": "hello", "source": f"b{n:03}", "session_id": f"s{n}"},
            *map(log, range(1, 40)),
        )
    open_run = daemon.run_ids()[0]
    spool(daemon, "zz-own", {"op": "hello", "source": "a", "session_id": "open"}, log(2))
    spool(daemon, "zz-child", {"op": "hello", "source": "child", "run_id": open_run}, log(1))
    spool(daemon, "zz-grandchild", {"op": "hello", "source": "grandchild", "parent": "a/1"}, log(1))
    daemon.start()
    left = os.listdir(daemon.base / "spool")
    assert not [name for name in left if name.startswith("zz")]
    assert [r["attempt"] for r in daemon.trace(open_run)] == [1] * len(daemon.trace(open_run))
    assert {r["src"]["id"] for r in daemon.trace(open_run) if "src" in r} == {"a", "child", "grandchild"}
    assert left, "it was ready before it had taken what belongs to no open run"
    # What is new in a session comes after what the session left behind.
    with RawClient(daemon.socket) as client:
        client.send({"op": "hello", "source": "new", "session_id": "s149"})
        assert client.expect("welcome")["attempt"] == 2
    until(lambda: not os.listdir(daemon.base / "spool"), "everything was taken")
    assert len(daemon.run_ids()) == 151
    healthy(daemon)
