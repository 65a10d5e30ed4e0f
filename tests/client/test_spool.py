"""Without a collector: what is in the spool file, how it is handed over, what its bound costs."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import socket
import stat
import threading
import time

import pytest

from agentrund_client import _handin, _process, _spool_folder
from agentrund_client._spool import Spool

from .fake_collector import WATCHDOG, FakeCollector


def spooled(path):
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def files(place):
    return sorted((place / "spool").glob("*.jsonl"))


def is_locked(path):
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def messages(collector):
    return [event["payload"]["message"] for event in collector.of_type("log")]


def test_the_form_of_the_file(client, place):
    with client.run("s", task="t") as run:
        client.log("a")
        (path,) = files(place)
        assert is_locked(path)
    assert path.name == f"{run.source}.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    hello, log, end = spooled(path)
    assert (hello["op"], hello["pid"], hello["source"], hello["session_id"]) == (
        "hello",
        os.getpid(),
        run.source,
        "s",
    )
    assert (log["n"], log["type"], log["payload"]["message"]) == (1, "log", "a")
    assert (end["n"], end["type"], end["status"]) == (2, "run.end", "ok")


def test_after_the_process_the_lock_is_free(run_agent, place):
    run_agent("ar.run()\nar.log('a')")
    (path,) = files(place)
    assert not is_locked(path)
    assert [frame.get("type") for frame in spooled(path)] == [None, "log", "run.end"]


def test_killed_without_a_collector_nothing_is_missing(agent_script, place):
    process = agent_script(
        """
        ar.run()
        with ar.agent("a"):
            for i in range(1000):
                ar.log("x", i=i)
            print("done", flush=True)
            input()
        """
    )
    assert process.stdout.readline() == "done\n"
    process.kill()
    process.wait()
    (path,) = files(place)
    assert [frame["n"] for frame in spooled(path)[1:]] == list(range(1, 1002))
    assert not is_locked(path)


def test_a_collector_that_appears_gets_everything_once_in_order(client, place):
    run = client.run()
    for i in range(5000):
        client.log("x" * 100, i=i)
    fake = FakeCollector(f"{place}/s.sock").start()
    for i in range(5000, 6000):
        client.log("x" * 100, i=i)
    fake.wait(lambda: fake.hellos)
    assert run.flush(30)
    client.log("x", i=6000)
    assert run.flush(30)
    assert [event["payload"]["i"] for event in fake.of_type("log")] == list(range(6001))
    assert (fake.jumps, fake.duplicates) == ([], 0)
    assert files(place) == []
    fake.stop()


def test_a_collector_that_goes_and_comes_over_and_over(client, place):
    run = client.run()
    fake = FakeCollector(f"{place}/s.sock")
    for i in range(2000):
        client.log("x", i=i)
        if i % 200 == 50:
            fake.start()
        if i % 200 == 150:
            fake.stop()
    fake.start()
    assert run.flush(30) or run.flush(30)
    assert [event["payload"]["i"] for event in fake.of_type("log")] == list(range(2000))
    assert fake.jumps == []
    assert files(place) == []
    fake.stop()


def test_a_collector_that_dies_while_the_spool_is_handed_over(client, place):
    run = client.run()
    for i in range(20000):
        client.log("x" * 200, i=i)
    fake = FakeCollector(f"{place}/s.sock")
    fake.acks = False
    fake.start()
    fake.wait(lambda: len(fake.of_type("log")) > 100)
    fake.stop()
    for i in range(20000, 20100):
        client.log("y", i=i)
    fake.acks = True
    fake.start()
    assert run.flush(30) or run.flush(30)
    assert [event["payload"]["i"] for event in fake.of_type("log")] == list(range(20100))
    assert files(place) == []
    fake.stop()


def test_the_bound_is_paid_for_in_a_lost_line(client, place, monkeypatch):
    monkeypatch.setenv("AGENTRUND_SPOOL_MAX_BYTES", "20000")
    with client.run():
        for _ in range(500):
            client.log("x" * 100)
    (path,) = files(place)
    assert path.stat().st_size < 20_500
    frames = spooled(path)
    (lost,) = [frame for frame in frames if frame.get("op") == "lost"]
    kept = [frame["n"] for frame in frames if frame.get("type") == "log"]
    assert (lost["from"], lost["to"]) == (len(kept) + 1, 500)
    assert frames[-1]["type"] == "run.end"
    assert frames[-1]["n"] == 501


def test_killed_over_the_bound_the_hole_is_marked_to_the_last_number(agent_script, place):
    process = agent_script(
        """
        ar.run()
        for i in range(500):
            ar.log("x" * 100)
        print("done", flush=True)
        input()
        """,
        env={**os.environ, "AGENTRUND_SPOOL_MAX_BYTES": "20000"},
    )
    assert process.stdout.readline() == "done\n"
    process.kill()
    process.wait()
    assert spooled(files(place)[0])[-1]["to"] == 500


def test_over_the_bound_and_then_a_collector(client, place, monkeypatch):
    monkeypatch.setenv("AGENTRUND_SPOOL_MAX_BYTES", "20000")
    run = client.run()
    for _ in range(500):
        client.log("x" * 100)
    fake = FakeCollector(f"{place}/s.sock").start()
    fake.wait(lambda: fake.hellos)
    assert run.flush(30)
    client.log("after")
    assert run.flush(30)
    stored = len(fake.of_type("log"))
    assert fake.lost[run.source] == [(stored, 500)]
    assert messages(fake)[-1] == "after"
    assert fake.jumps == []
    fake.stop()


def test_a_full_disk_is_counted_and_leaves_no_torn_line(client, place):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, hard))
        with client.run():
            for _ in range(100):
                client.log("x" * 100)
                assert files(place)[0].read_bytes().endswith(b"}\n")  # at no moment a torn line
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            client.log("room again")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    frames = spooled(files(place)[0])[1:]
    covered = [n for f in frames for n in ([f["n"]] if "n" in f else range(f["from"], f["to"] + 1))]
    assert covered == list(range(1, 103))
    assert frames[-2]["payload"]["message"] == "room again"


def orphan(place, name, *, events=50, size=100, end=True, days=31):
    """A file that somebody left behind so many days ago."""
    folder = place / "spool"
    folder.mkdir(mode=0o700, exist_ok=True)
    lines = [{"op": "hello", "v": 1, "source": name, "task": name}]
    lines += [{"n": n, "type": "log", "payload": {"message": "x" * size}} for n in range(1, events + 1)]
    lines += [{"n": events + 1, "type": "run.end", "status": "ok"}] if end else []
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    then = time.time() - days * 86_400
    os.utime(path, (then, then))
    return path


@pytest.mark.parametrize(("events", "size"), [(50, 100), (2000, 100), (3, 300_000)])
@pytest.mark.parametrize("end", [True, False])
def test_a_file_that_waited_too_long_keeps_its_beginning_its_end_and_the_count(
    client, place, events, size, end
):
    old = orphan(place, "old", events=events, size=size, end=end)
    young = orphan(place, "young", days=29).read_bytes()
    client.log("new")
    frames = spooled(old)
    assert frames[0] == {"op": "hello", "v": 1, "source": "old", "task": "old"}
    assert frames[1] == {"op": "lost", "from": 1, "to": events}
    assert frames[2:] == ([{"n": events + 1, "type": "run.end", "status": "ok"}] if end else [])
    assert (place / "spool" / "young.jsonl").read_bytes() == young
    assert stat.S_IMODE(old.stat().st_mode) == 0o600
    assert [name for name in os.listdir(place / "spool") if not name.endswith(".jsonl")] == []


def test_what_is_old_but_not_ours_to_empty_is_left_alone(client, place):
    living = orphan(place, "living")
    odd = {name: orphan(place, name) for name in ("junk", "torn", "linked", "small")}
    odd["junk"].write_bytes(b"no hello at all\n" * 100)
    odd["torn"].write_bytes(b'{"op":"hello"' + b"x" * 100_000)
    os.link(odd["linked"], place / "elsewhere")
    odd["small"].write_bytes(b'{"op":"hello"}\n{"n":1,"type":"x"}\n')
    (place / "spool" / "link.jsonl").symlink_to(living)
    os.mkfifo(place / "spool" / "fifo.jsonl")
    for path in odd.values():
        os.utime(path, (0, 0))
    before = {path: path.read_bytes() for path in (living, *odd.values())}
    with living.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        client.log("new")
    assert {path: path.read_bytes() for path in before} == before
    assert (place / "spool" / "link.jsonl").is_symlink()


def test_in_a_full_folder_a_new_file_counts_what_it_has_no_room_for(client, place, monkeypatch):
    monkeypatch.setenv("AGENTRUND_SPOOL_FOLDER_MAX_BYTES", "6000")
    orphan(place, "other", days=1)
    with client.run() as run:
        for _ in range(20):
            client.log("x" * 100)
    frames = spooled(place / "spool" / f"{run.source}.jsonl")
    assert [frame.get("op") or frame["type"] for frame in frames] == ["hello", "lost", "run.end"]
    assert (frames[1]["from"], frames[1]["to"]) == (1, 20)


def test_where_too_many_files_wait_events_stay_in_memory(client, place, monkeypatch, capsys):
    monkeypatch.setattr(_spool_folder, "FOLDER_FILES", 3)
    for name in "abc":
        orphan(place, name, days=1)
    run = client.run()
    client.log("kept")
    assert "3 files wait in" in capsys.readouterr().err
    assert len(files(place)) == 3
    fake = FakeCollector(f"{place}/s.sock").start()
    assert run.flush(30) or run.flush(30)
    assert messages(fake) == ["kept"]
    fake.stop()


def test_secrets_do_not_reach_the_file(client, place):
    with client.run(meta={"api_key": "plain-secret-1"}):
        client.log("calling with Bearer abcdefghijklmnop0123456789", password="plain-secret-2", max_tokens=5)
    (path,) = files(place)
    text = path.read_text()
    assert "plain-secret" not in text
    assert "abcdefghijklmnop" not in text
    assert spooled(path)[1]["payload"]["max_tokens"] == 5


@pytest.mark.parametrize("folder", ["/dev/null/x", "/proc/nothing/here"])
def test_no_spool_to_be_had_memory_serves(client, place, monkeypatch, capsys, folder):
    monkeypatch.setenv("AGENTRUND_SPOOL", folder)
    run = client.run()
    client.log("a")
    assert "kept in memory only" in capsys.readouterr().err
    fake = FakeCollector(f"{place}/s.sock").start()
    assert run.flush(30) or run.flush(30)
    assert messages(fake) == ["a"]
    fake.stop()


def test_a_file_the_collector_took_away_is_made_again(client, place, collector):
    collector.stop()
    run = client.run()
    client.log("a")
    files(place)[0].unlink()
    collector.acks = False
    collector.start()
    collector.wait(lambda: collector.of_type("log"))
    collector.stop()
    client.log("b")
    client.log("c")
    collector.high.clear()  # a collector that knows nothing: everything must come again
    collector.stored.clear()
    collector.acks = True
    collector.start()
    assert run.flush(30) or run.flush(30)
    assert messages(collector) == ["a", "b", "c"]


def test_a_late_event_goes_on_in_the_same_file(client, place):
    with client.run() as run:
        client.log("a")
    client.log("late")
    (path,) = files(place)
    assert path.name == f"{run.source}.jsonl"
    assert [frame.get("n") for frame in spooled(path)] == [None, 1, 2, 3]


def test_a_torn_last_line_is_cut_off_when_the_file_is_used_again(tmp_path):
    spool = Spool(str(tmp_path), "s", b'{"op":"hello","source":"s"}\n', 10_000)
    spool.append(1, b'{"n":1,"type":"log"}\n')
    spool.close()
    path = tmp_path / "s.jsonl"
    with path.open("ab") as file:
        file.write(b'{"n":2,"type":"a much longer line that was torn')
    again = Spool(str(tmp_path), "s", b"", 10_000)
    assert again.last_n == 1
    again.append(2, b'{"n":2}\n')
    again.close()
    assert [frame.get("n") for frame in spooled(path)] == [None, 1, 2]


def test_somebody_elses_folder_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(PermissionError):
        Spool(str(tmp_path), "s", b"{}\n", 1000)


def test_orphans_are_handed_in_and_the_living_left_alone(run_agent, agent_script, client, place, monkeypatch):
    monkeypatch.setattr(_handin, "DELAY", 0)
    monkeypatch.setattr(_handin, "_begun_by", 0)
    run_agent("with ar.run('orphan'):\n    ar.log('from the dead')")
    (orphan,) = files(place)
    (place / "spool" / "junk.jsonl").write_text("no hello\n")
    living = agent_script("ar.run('living')\nar.log('alive')\nprint(1, flush=True)\ninput()")
    living.stdout.readline()
    living.send_signal(signal.SIGSTOP)
    fake = FakeCollector(f"{place}/s.sock").start()
    client.run("mine")
    fake.wait(lambda: fake.of_type("run.end"))
    for thread in threading.enumerate():
        if thread.name == "agentrund-spool":
            thread.join(WATCHDOG)
    assert not orphan.exists()
    assert messages(fake) == ["from the dead"]
    hello = next(frame for frame in fake.hellos if frame.get("orphan"))
    assert hello["pid"] != os.getpid()
    assert sorted(path.name for path in files(place)) == sorted(
        [path.name for path in files(place) if is_locked(path)] + ["junk.jsonl"]
    )
    assert any(is_locked(path) for path in files(place))
    living.send_signal(signal.SIGCONT)
    fake.stop()


def test_a_collector_that_has_gone_again_is_no_fault(place, monkeypatch, capfd):
    monkeypatch.setattr(_handin, "DELAY", 0)
    left = orphan(place, "left")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(f"{place}/s.sock")  # and nobody listens
        _handin._wait_and_hand_in()
    assert (left.exists(), capfd.readouterr().err) == (True, "")


def test_a_late_event_does_not_overtake_what_the_spool_holds(client, place):
    with client.run() as run:
        client.log("a")
    _process._recorders[0].source.link.leave(0)  # what the loop does soon by itself
    fake = FakeCollector(f"{place}/s.sock").start()
    client.log("late")
    fake.wait(lambda: len(fake.of_type("log")) == 2)
    assert [event["n"] for event in fake.stored[run.source]] == [1, 2, 3]
    assert fake.jumps == []
    fake.stop()
