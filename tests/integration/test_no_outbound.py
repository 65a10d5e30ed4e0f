"""Nothing phones home: every address that the collector and its commands ever talk to, as the kernel saw it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.daemon import Daemon
from support.raw_client import RawClient
from support.waiting import until

PROGRAM = Path(__file__).parent.parent / "support" / "otel_program.py"
CALLS = "trace=connect,sendto,sendmsg,sendmmsg"
PEER = re.compile(
    r"sa_family=(AF_\w+)"
    r"(?:, sun_path=(\S+?)\}|.*?(?:inet_addr\(\"([^\"]+)\"\)|inet_pton\(AF_INET6, \"([^\"]+)\"))?"
)
LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


@pytest.fixture
def traced(tmp_path):
    """A collector in a namespace with nothing but loopback, each of its calls written down."""
    if os.geteuid() != 0 or shutil.which("strace") is None or shutil.which("unshare") is None:
        pytest.skip("this needs root, strace and unshare")
    calls = tmp_path / "calls"
    # -D: the collector is our child, and strace its watcher.
    script = f'ip link set lo up && exec strace -D -f -qq -e {CALLS} -o {calls} "$@"'
    wrapper = ["unshare", "--net", "sh", "-c", script, "sh"]
    if subprocess.run([*wrapper, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let us trace in a network namespace")
    with Daemon(tmp_path, wrapper=wrapper, otlp_grpc="127.0.0.1:0") as daemon:
        yield daemon, calls


def peers(text: str) -> set[str]:
    """Whom calls were meant for; what names nobody goes to a peer that was named before."""
    found = set()
    for family, path, four, six in PEER.findall(text):
        found.add(four or six or (family if family != "AF_UNIX" else f"unix:{path}"))
    return found


def test_only_the_local_machine_is_ever_talked_to(traced, tmp_path):
    daemon, calls = traced
    inside = ["nsenter", f"--net=/proc/{daemon.process.pid}/ns/net"]
    with RawClient(daemon.socket) as client:
        client.hello(session_id="s", framework="f")
        client.send({"n": 1, "type": "log", "payload": {"message": "x" * 9000}}, {"n": 2, "type": "run.end"})
        client.acked(2)
    subprocess.run([*inside, sys.executable, str(PROGRAM), daemon.otlp, "ok"], check=True, timeout=60)
    until(lambda: [r["status"] for r in daemon.rows()] == ["ok", "ok"], "both runs")
    by_commands = tmp_path / "by_commands"
    env = {**daemon.env, "AGENTRUND_ROOT": str(daemon.root), "AGENTRUND_SOCKET": str(daemon.socket)}
    for command in ("status", "runs", "show latest", "tail", "verify", "config", "rebuild latest", "reindex"):
        line = [*inside, "strace", "-f", "-qq", "-A", "-e", CALLS, "-o", str(by_commands)]
        line += [sys.executable, "-m", "agentrund.cli.main", *command.split()]
        done = subprocess.run(line, check=False, capture_output=True, text=True, env=env, timeout=60)
        assert done.returncode == 0, (command, done.stderr)
    assert daemon.stop() == 0
    until(lambda: "connect(" in by_commands.read_text(), "what the commands did")
    seen = peers(calls.read_text()) | peers(by_commands.read_text())
    assert "welcome" in calls.read_text()
    assert f'unix:"{daemon.socket}"' in seen
    foreign = {peer for peer in seen if not peer.startswith("unix:")} - LOOPBACK - {"AF_NETLINK", "AF_UNSPEC"}
    assert foreign == set()


def test_this_test_would_see_one_that_was():
    line = '1 connect(3, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("8.8.8.8")}, 16) = 0\n'
    six = 'sendto(5, "x", 1, 0, {sa_family=AF_INET6, sin6_port=htons(53), inet_pton(AF_INET6, "2001:db8::1", &s)}'
    assert peers(line + six) == {"8.8.8.8", "2001:db8::1"}
    assert peers('connect(3, {sa_family=AF_UNIX, sun_path="/run/x"}, 110)') == {'unix:"/run/x"'}
