"""Deaths: seen at once, told with their cause, never invented."""

from __future__ import annotations

import json
import signal
import socket

import pytest

from support.daemon import Daemon
from support.processes import Agent
from support.raw_client import RawClient
from support.waiting import until

WORK = """
client.hello("agent", session_id="s")
client.send({"n": 1, "type": "agent.start", "name": "planner", "span": "1"},
            {"n": 2, "type": "tool.call", "name": "run_python", "span": "2", "parent": "1", "payload": {"args": {}}})
client.acked(2)
"""


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path) as running:
        yield running


def logs(daemon, run_id=None) -> str:
    ids = [run_id] if run_id else daemon.run_ids()
    path = daemon.run_dir(ids[0]) / "agent.logs" if ids else None
    return path.read_text() if path and path.exists() else ""


def banner(daemon, run_id=None) -> list[str]:
    """The crash marker and its open lines."""
    return until(
        lambda: [line for line in logs(daemon, run_id).split("\n") if line.startswith(("----", "     open"))],
        "a banner",
    )


def finished(daemon) -> dict:
    return until(lambda: [row for row in daemon.rows() if row["status"] != "running"], "an ended row")[0]


def test_a_kill_gets_its_banner_with_what_was_open(daemon):
    with Agent(daemon.socket, WORK + "ready()") as agent:
        agent.wait_ready()
        agent.kill()
    lines = banner(daemon)
    assert "without run.end (process exited: killed by SIGKILL) ----" in lines[0]
    assert lines[1].startswith("     open: #0002 planner (agent.start, ")
    assert lines[2].startswith("     open: #0003 run_python (tool.call, ")
    row = finished(daemon)
    assert (row["status"], row["last_error"]) == ("crashed", "process exited: killed by SIGKILL")
    meta = json.loads((daemon.run_dir() / "meta.json").read_text())
    assert meta["attempts"][0]["outcome"] == "crashed"
    assert meta["attempts"][0]["cause"] == "process exited: killed by SIGKILL"
    assert daemon.cli("verify").returncode == 0


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("sys.exit(3)", "process exited: exit code 3"),
        ("os._exit(0)", "process exited: exit code 0"),
        ("os.kill(os.getpid(), signal.SIGTERM)", "process exited: killed by SIGTERM"),
        ("os.abort()", "process exited: killed by SIGABRT"),
    ],
)
def test_the_cause_is_what_the_kernel_says(daemon, code, cause):
    with Agent(daemon.socket, WORK + code) as agent:
        agent.end()
    assert f"({cause})" in banner(daemon)[0]


def test_what_was_in_the_socket_at_the_death_comes_before_its_end(daemon):
    code = """
import socket
client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 21)
client.send({"op": "hello", "source": "agent"})
client.sock.setblocking(False)
sent = 0
try:
    # More than one read of the collector, where the kernel takes that much.
    while sent < 2000:
        line = b'{"n":%d,"type":"log","payload":{"i":%d,"x":"%b"}}' % (sent + 1, sent + 1, b"y" * 400)
        if client.sock.send(line + b"\\n") != len(line) + 1:
            break
        sent += 1
except BlockingIOError:
    pass
print(sent, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    daemon.process.send_signal(signal.SIGSTOP)
    with Agent(daemon.socket, code) as agent:
        sent = int(agent.process.stdout.readline())
        agent.end()
    daemon.process.send_signal(signal.SIGCONT)
    banner(daemon)
    trace = daemon.trace()
    assert [r["payload"]["i"] for r in trace if r["type"] == "log"] == list(range(1, sent + 1))
    assert trace[-1]["type"] == "source.exit"


def test_what_a_source_wrote_down_comes_before_its_end(daemon):
    with Agent(daemon.socket, WORK + "ready()") as agent:
        agent.wait_ready()
        spool = daemon.base / "spool"
        spool.mkdir(mode=0o700, exist_ok=True)
        frames = [{"op": "hello", "source": "agent"}, {"n": 3, "type": "run.end", "status": "ok"}]
        (spool / "agent.jsonl").write_text("".join(json.dumps(frame) + "\n" for frame in frames))
        agent.kill()
    assert finished(daemon)["status"] == "ok"
    assert "without run.end" not in logs(daemon)


def test_a_grandchild_that_holds_the_socket_does_not_hide_a_death(daemon):
    code = (
        WORK
        + """
os.set_inheritable(client.sock.fileno(), True)
subprocess.Popen(["sleep", "60"], close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
ready()
"""
    )
    with Agent(daemon.socket, code) as agent:
        agent.wait_ready()
        agent.kill()
    assert "killed by SIGKILL" in banner(daemon)[0]


def test_a_closed_connection_is_no_death(daemon):
    with Agent(
        daemon.socket,
        WORK
        + "client.close(); ready(); client = RawClient(Path(sys.argv[1])); print(client.hello('agent')['acked'], flush=True)",
    ) as agent:
        agent.wait_ready()
        with RawClient(daemon.socket) as other:
            other.settle()
        assert "without run.end" not in logs(daemon)
        agent.go_on()
        assert agent.process.stdout.readline() == "2\n"


def test_others_live_on_and_the_death_is_an_event(daemon):
    with RawClient(daemon.socket) as owner:
        run_id = owner.hello("owner", session_id="s")["run_id"]
        with Agent(daemon.socket, WORK + "ready()") as agent:
            agent.wait_ready()
            agent.kill()
        exited = until(lambda: [r for r in daemon.trace() if r["type"] == "source.exit"], "source.exit")[0]
        assert exited["payload"]["error_type"] == "SourceExited"
        assert [step["name"] for step in exited["payload"]["open"]] == ["planner", "run_python"]
        owner.send({"n": 1, "type": "run.end", "status": "ok"})
        owner.acked(1)
        assert daemon.trace(run_id)[-1]["type"] == "run.end"
    assert finished(daemon)["status"] == "ok"
    assert "without run.end" not in logs(daemon)


def test_a_killed_session_is_resumed_in_its_folder(daemon):
    for _ in range(2):
        with Agent(daemon.socket, WORK.replace('"agent"', "f'agent-{os.getpid()}'") + "ready()") as agent:
            agent.wait_ready()
            agent.kill()
        until(lambda: [row for row in daemon.rows() if row["status"] == "crashed"], "crashed")
    with RawClient(daemon.socket) as client:
        welcome = client.hello("third", session_id="s")
        assert welcome["attempt"] == 3
        client.send({"n": 1, "type": "run.end", "status": "ok"})
        client.acked(1)
    assert finished(daemon)["status"] == "ok"
    text = logs(daemon)
    assert text.count("without run.end") == 2
    assert text.count("==== attempt") == 3
    assert [r["seq"] for r in daemon.trace()] == list(range(1, len(daemon.trace()) + 1))
    assert daemon.cli("verify").returncode == 0


# -- the collector itself goes away ---------------------------------------------------------------


def test_a_restart_goes_on_at_the_next_number_and_closes_the_dead(daemon):
    with (
        Agent(
            daemon.socket, WORK.replace('"agent"', '"living"').replace('"s"', '"living"') + "ready()"
        ) as living,
        Agent(daemon.socket, WORK + "ready()") as dying,
    ):
        living.wait_ready()
        dying.wait_ready()
        daemon.kill()
        dying.kill()
        daemon.start()
        rows = until(
            lambda: {row["session_id"]: row for row in daemon.rows() if row["status"] == "crashed"}, "crashed"
        )
        assert set(rows) == {"s"}
        assert "(process exited)" in banner(daemon, rows["s"]["run_id"])[0]
        [run_id] = [row["run_id"] for row in daemon.rows() if row["status"] == "running"]
        assert "without run.end" not in logs(daemon, run_id)
        living.kill()
        assert "killed by SIGKILL" in banner(daemon, run_id)[0]
        until(lambda: all(row["status"] == "crashed" for row in daemon.rows()), "both ended")
    assert daemon.cli("verify").returncode == 0


def test_sigterm_takes_what_was_sent_and_leaves_open_runs_open(daemon):
    with RawClient(daemon.socket) as client:
        client.hello("a")
        client.send(*[{"n": n, "type": "log", "payload": {"i": n}} for n in range(1, 201)])
        assert daemon.stop() == 0
        assert not daemon.socket.exists()
        assert not daemon.socket.with_suffix(".json").exists()
        assert len(daemon.trace()) == 201
        assert [row["status"] for row in daemon.rows()] == ["running"]
        daemon.start()
        with RawClient(daemon.socket) as again:
            assert again.hello("a")["acked"] == 200


def test_a_second_collector_on_the_same_root_says_who_holds_it(daemon, tmp_path):
    other = daemon.cli("serve", "--socket", str(tmp_path / "other" / "s.sock"), "--otlp-grpc", "off")
    assert other.returncode != 0
    assert f"pid {daemon.process.pid}" in other.stderr
    assert len(other.stderr.strip().splitlines()) == 2


def test_a_second_collector_on_the_same_socket_is_refused(daemon, tmp_path):
    other = daemon.cli("serve", "--root", str(tmp_path / "other"), "--otlp-grpc", "off")
    assert other.returncode != 0
    assert "another collector" in other.stderr
    with RawClient(daemon.socket) as client:
        client.settle()


def test_a_source_taken_over_is_judged_by_its_new_process(daemon):
    first = "client.hello('x', session_id='s'); client.send({'op': 'bye'}); client.settle(); ready()"
    with RawClient(daemon.socket) as keeper, Agent(daemon.socket, first) as one:
        keeper.hello("keeper", session_id="s")
        one.wait_ready()
        take = "print(client.hello('x', session_id='s').get('code'), flush=True); ready()"
        with Agent(daemon.socket, take) as two:
            assert two.process.stdout.readline() == "not_allowed\n"
            two.kill()
        one.kill()
        with Agent(daemon.socket, take) as three:
            assert three.process.stdout.readline() == "None\n"
            three.wait_ready()
            three.kill()
        exits = until(
            lambda: [r["payload"]["cause"] for r in daemon.trace() if r["type"] == "source.exit"][1:],
            "the death",
        )
        assert exits == ["process exited: killed by SIGKILL"]


def test_a_terminal_that_is_closed_does_not_end_the_recording(daemon):
    daemon.process.send_signal(signal.SIGHUP)
    with RawClient(daemon.socket) as client:
        client.settle()
    assert daemon.stop() == 0


def test_the_service_manager_is_told(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        with Daemon(tmp_path, env={"NOTIFY_SOCKET": str(tmp_path / "notify")}) as daemon:
            assert manager.recv(100) == b"READY=1"
            daemon.stop()
            assert manager.recv(100) == b"STOPPING=1"
