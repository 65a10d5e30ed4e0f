"""The program as a user types it: output, exit codes, errors, over run folders and no collector."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.run_folder import CRASHED, ENDED, RUN, RUNNING, write_run

LIVE = "20260830_142300_0001"
DONE = "20260830_142240_0007"


@pytest.fixture
def root(tmp_path):
    write_run(tmp_path / ".runs", CRASHED)
    write_run(tmp_path / ".runs", ENDED, DONE)
    write_run(tmp_path / ".runs", RUNNING, LIVE)
    return tmp_path


@pytest.fixture
def typed(root):
    """Run the program in the folder that holds ``.runs``, with an environment of its own."""

    def run(*args, env=None, cwd=root):
        return subprocess.run(
            [sys.executable, "-m", "agentrund.cli.main", *args],
            capture_output=True,
            text=True,
            cwd=cwd,
            env=environment(root) | (env or {}),
            check=False,
            timeout=60,
        )

    return run


def environment(root):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AGENTRUND", "XDG", "NO_COLOR"))}
    return kept | {
        "HOME": str(root / "home"),
        "XDG_RUNTIME_DIR": str(root / "run"),
        "PYTHONWARNINGS": "error",
    }


def fails(done, code, what):
    assert done.returncode == code, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 2, done.stderr
    assert lines[0].startswith("agentrund: ")
    assert what in lines[0]
    assert lines[1].startswith("  hint: ")
    assert "Traceback" not in done.stderr
    return True


# -- runs -----------------------------------------------------------------------------------------


def test_runs_without_an_index(typed):
    done = typed("runs")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["RUN", "STATUS", "STARTED"]
    assert [line.split()[:2] for line in lines[1:]] == [[LIVE, "running"], [DONE, "ok"], [RUN, "crashed"]]
    assert "killed by SIGKILL" in lines[3]
    assert "\x1b" not in done.stdout


def test_runs_as_json_lines(typed):
    rows = [json.loads(line) for line in typed("runs", "--json").stdout.splitlines()]
    assert [row["run_id"] for row in rows] == [LIVE, DONE, RUN]
    assert {"run_id", "session_id", "started_at", "status", "active_sec", "cost_usd", "llm_calls", "tool_calls",
            "errors", "framework", "model", "last_error"} <= rows[0].keys()  # fmt: skip


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (["--status", "crashed"], [RUN]),
        (["--session", "sess_live"], [LIVE]),
        (["-n", "1"], [LIVE]),
        (["-n", "0"], []),
        (["--since", "1999-01-01"], [LIVE, DONE, RUN]),
        (["--since", "2199-01-01"], []),
    ],
)
def test_runs_filters(typed, args, found):
    done = typed("runs", "--json", *args)
    assert [json.loads(line)["run_id"] for line in done.stdout.splitlines()] == found


def test_runs_of_another_root(typed, root):
    (root / "else").mkdir()
    done = typed("runs", "else")
    assert (done.returncode, done.stdout, "no runs" in done.stderr) == (0, "", True)


# -- show -----------------------------------------------------------------------------------------


def test_show_outline_of_a_run_that_has_none_yet(typed):
    for run in (LIVE, "latest", "sess_live", LIVE[:16]):
        done = typed("show", run)
        assert done.returncode == 0, done.stderr
        assert "search" in done.stdout
    assert "killed by SIGKILL" in typed("show", "sess_eda").stdout


def test_show_event_with_its_whole_payload(typed):
    done = typed("show", f"{RUN}#0003")
    assert done.stdout.startswith("#0003 llm.prompt planner\n")
    assert done.stdout.count("plan\n") == 40
    assert "blobs/" not in done.stdout
    assert "blobs/" in typed("show", f"{RUN}#3", "--detail", "high").stdout
    assert "plan" not in typed("show", f"{RUN}#3", "--detail", "low").stdout.splitlines()[-1]


def test_show_event_as_json(typed):
    record = json.loads(typed("show", f"{RUN}#0003", "--json").stdout)
    assert (record["seq"], record["payload"]["text"]) == (3, "plan\n" * 40)


def test_show_run_as_json_and_lines(typed):
    document = json.loads(typed("show", RUN, "--json").stdout)
    assert document["analytics"]["status"] == "crashed"
    assert document["meta"]["attempts"][0]["outcome"] == "crashed"
    assert [event["seq"] for event in document["events"]] == [1, 2, 3, 4, 5, 6]
    assert "events" not in json.loads(typed("show", RUN, "--json", "--detail", "low").stdout)
    lines = typed("show", RUN, "--format", "jsonl", "--detail", "full").stdout.splitlines()
    assert json.loads(lines[2])["payload"]["text"] == "plan\n" * 40


def test_show_run_in_full_and_in_short(typed):
    assert typed("show", RUN, "--detail", "full").stdout.count("plan\n") == 40
    assert "status      crashed\n" in typed("show", RUN, "--detail", "low").stdout


def test_hostile_text_reaches_no_terminal(typed, root):
    facts = [("log", "\x1b[2Jname", {"message": "\x1b]0;owned\x07", "text": "\x1b[31mred\n#0001 forged"})]
    write_run(root / "hostile", facts, limit=8192)
    for args in (
        ["show", "latest"],
        ["show", "latest#1"],
        ["tail"],
        ["runs"],
        ["show", "latest", "--detail", "full"],
    ):
        done = typed(*args, "--root", "hostile")
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout
        assert "\x07" not in done.stdout


# -- tail -----------------------------------------------------------------------------------------


def test_tail_is_the_end_of_agent_logs(typed, root):
    logs = (root / ".runs" / "runs" / RUN / "agent.logs").read_text()
    assert typed("tail", RUN).stdout == logs
    assert typed("tail", RUN, "-n", "2").stdout == logs[logs.index("#0005") :]
    assert typed("tail", RUN, "--after", "#0005").stdout == logs[logs.index("#0006") :]
    assert typed("tail", f"{RUN}#0005").stdout == logs[logs.index("#0006") :]


def test_tail_of_a_run_without_a_transcript_says_so(typed, root):
    (root / ".runs" / "runs" / RUN / "agent.logs").unlink()
    done = typed("tail", RUN)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"agentrund rebuild {RUN}" in done.stderr


def test_tail_follows_until_interrupted(root):
    command = [sys.executable, "-m", "agentrund.cli.main", "tail", "-f", "-n", "0", LIVE]
    with subprocess.Popen(
        command, cwd=root, env=environment(root), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        logs = root / ".runs" / "runs" / LIVE / "agent.logs"
        line = b"#0003 14:22:37.000  +1.0s  log           -            now\n"
        # Until it prints, it may not have reached the file: each line is a new event.
        os.set_blocking(process.stdout.fileno(), False)
        got, seq = b"", 3
        deadline = time.monotonic() + 30
        while not got and time.monotonic() < deadline:
            with logs.open("ab") as file:
                file.write(line.replace(b"#0003", b"#%04d" % seq))
            seq += 1
            time.sleep(0.1)
            got = process.stdout.read() or b""
        assert b"now" in got
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert process.stderr.read() == b""


# -- colour ---------------------------------------------------------------------------------------


def test_colour_only_where_it_is_wanted(typed):
    assert "\x1b[" in typed("tail", RUN, "--color", "always").stdout
    assert "\x1b[" in typed("runs", "--color", "always", env={"NO_COLOR": "1"}).stdout
    assert "\x1b[" not in typed("tail", RUN).stdout


@pytest.mark.parametrize(
    ("env", "colored"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colour_on_a_terminal(root, env, colored):
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "agentrund.cli.main", "tail", RUN]
    try:
        subprocess.run(command, stdout=child, env=environment(root) | env, cwd=root, check=True, timeout=60)
        os.close(child)
        assert (b"\x1b[" in os.read(parent, 4096)) == colored
    finally:
        os.close(parent)


# -- verify, config, status -----------------------------------------------------------------------


def test_verify_names_file_and_offset(typed, root):
    trace = root / ".runs" / "runs" / RUN / "trace.jsonl"
    first = trace.read_bytes().index(b"\n") + 1
    data = bytearray(trace.read_bytes())
    data[first : first + 10] = b"xxxxxxxxxx"
    trace.write_bytes(data)
    done = typed("verify", RUN)
    assert done.returncode == 1
    assert f"{RUN}/trace.jsonl:{first}: " in done.stdout
    found = [json.loads(line) for line in typed("verify", RUN, "--json").stdout.splitlines()]
    assert [f for f in found if f["path"].endswith("trace.jsonl") and f["offset"] == first]
    assert found[0].keys() == {"path", "offset", "message", "hint"}


def test_verify_shows_a_bar_on_a_terminal(root):
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "agentrund.cli.main", "verify", RUN]
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=child,
            env=environment(root),
            cwd=root,
            check=False,
            timeout=60,
        )
        os.close(child)
        assert b"verify" in os.read(parent, 4096)
    finally:
        os.close(parent)
    assert b"verify  [" not in done.stdout
    assert done.stdout


def test_config_shows_where_a_value_came_from(typed, root):
    (root / "agentrund.toml").write_text('idle_close = "2min"\n')
    done = typed("config", "--show-origin", env={"AGENTRUND_SYNC": "interval"})
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert str(root / "agentrund.toml") in rows["idle_close"]
    assert "env AGENTRUND_SYNC" in rows["sync"]
    assert "default" in rows["otlp_grpc"]
    shown = json.loads(typed("config", "--json").stdout)
    assert shown["idle_close"] == {"value": "2min", "origin": str(root / "agentrund.toml")}
    assert "idle_close = 2min\n" in typed("config").stdout


def test_status_without_a_collector(typed):
    assert fails(typed("status"), 4, "no collector")
    assert fails(typed("status", "--socket", "nowhere.sock"), 4, "nowhere.sock")


def test_status_without_a_collector_says_what_waits_for_one(typed, root):
    (root / "spool").mkdir()
    (root / "spool" / "a.jsonl").write_text("{}\n")
    done = typed("status", env={"AGENTRUND_SPOOL": str(root / "spool")})
    assert fails(done, 4, f"no collector is running; 1 spool file waits in {root / 'spool'}")
    (root / "spool" / "b.jsonl").write_text("{}\n")
    done = typed("status", env={"AGENTRUND_SPOOL": str(root / "spool")})
    assert fails(done, 4, "; 2 spool files wait in ")


def test_a_wrong_time_is_a_wrong_time_without_a_root_too(typed):
    assert fails(typed("runs", "--root", "gone", "--since", "soon"), 2, "soon")


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "code", "what"),
    [
        (["dance"], 2, "dance"),
        (["runs", "--status", "great"], 2, "great"),
        (["runs", "--since", "soon"], 2, "soon"),
        (["runs", "-n", "x"], 2, "x"),
        (["show"], 2, "RUN"),
        (["show", "2026"], 2, "matches 3 runs"),
        (["show", "latest", "--json", "--format", "jsonl"], 2, "contradict"),
        (["tail", "--after", "x"], 2, "`x`"),
        (["show", "1999"], 3, "1999"),
        (["show", "latest#0099"], 3, "#0099"),
        (["show", "latest#x"], 2, "`x` is no event number"),
        (["tail", "nothing"], 3, "nothing"),
        (["verify", "nothing"], 3, "nothing"),
        (["rebuild", "nothing"], 3, "nothing"),
        (["runs", "--root", "gone"], 2, "gone"),
        (["serve", "--otlp-grpc", "0.0.0.0:1"], 2, "otlp_grpc"),
        (["serve", "--idle-close", "60"], 2, "idle_close"),
    ],
)
def test_errors_are_two_lines_and_a_code(typed, args, code, what):
    assert fails(typed(*args), code, what)


@pytest.mark.parametrize("env", [{}, {"GRPC_VERBOSITY": "ERROR"}])
def test_a_port_in_use_is_an_error_that_names_its_owner(typed, env):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        done = typed("serve", "--socket", "s/agentrund.sock", "--otlp-grpc", address, env=env)
    name = Path("/proc/self/comm").read_text().strip()
    assert done.returncode == 4
    assert f"agentrund: {address} is taken by pid {os.getpid()} ({name})\n" in done.stderr
    assert "hint: " in done.stderr
    assert "--otlp-grpc off" in done.stderr
    # grpc's own words on it are there for who asks for them only.
    assert ("add_port.cc" in done.stderr) == bool(env)


def test_a_bad_setting_stops_every_command(typed, root):
    (root / "agentrund.toml").write_text("rooot = 'x'\n")
    for command in (["runs"], ["serve"], ["status"], ["config"], ["show", "latest"]):
        assert fails(typed(*command), 2, "`rooot`")


def test_a_socket_path_that_is_too_long_stops_every_command(typed, root):
    for command in (["status"], ["serve"], ["runs"], ["show", "latest"], ["rebuild", "latest"], ["config"]):
        assert fails(
            typed(*command, env={"AGENTRUND_SOCKET": "/" + "x" * 107}), 2, "108 bytes, the limit is 107"
        )
    assert fails(typed("status", "--socket", "/" + "x" * 107), 2, "flag --socket: /xxx")


def test_damage_is_code_5(typed, root):
    (root / ".runs" / "runs" / RUN / "trace.jsonl").write_bytes(b"no record\n")
    assert fails(typed("show", RUN), 5, "trace.jsonl:0")


def test_no_root_at_all(typed, tmp_path):
    (tmp_path / "empty").mkdir()
    assert fails(typed("runs", cwd=tmp_path / "empty"), 3, "no runs here")


def test_debug_shows_the_traceback(typed):
    assert "Traceback" in typed("show", "1999", "--debug").stderr
    assert "Traceback" in typed("--debug", "show", "1999").stderr


def test_our_own_fault_is_code_10(typed, root):
    (root / "sitecustomize.py").write_text(
        "import agentrund.views.runs as r\ndef f(*a): raise ZeroDivisionError('x')\nr.list_runs = f\n"
    )
    assert fails(typed("runs", env={"PYTHONPATH": str(root)}), 10, "ZeroDivisionError")


def test_a_reader_that_goes_away_is_no_error(root):
    write_run(root / "long", [("log", None, {"message": "x" * 50})] * 5000)
    program = f"{sys.executable} -m agentrund.cli.main"
    for command in ("tail -n 5000", "show latest --format jsonl"):
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {program} {command} --root long | head -c 10"],
            capture_output=True, cwd=root, env=environment(root), check=False, timeout=60,
        )  # fmt: skip
        assert done.stderr == b""


def test_help_of_every_command_says_what_and_gives_examples(typed):
    listed = typed("--help").stdout
    for name in ("serve", "status", "runs", "show", "tail", "verify", "rebuild", "reindex", "config"):
        done = typed(name, "--help")
        assert done.returncode == 0
        first = done.stdout.split("\n\n")[1].strip().splitlines()[0]
        assert first in listed.replace("\n           ", " ")
        assert f"  agentrund {name}" in done.stdout.split("Examples:")[1]
    assert typed().stdout == listed


def test_completion(typed):
    done = typed(
        env={"_AGENTRUND_COMPLETE": "bash_complete", "COMP_WORDS": "agentrund re", "COMP_CWORD": "1"}
    )
    assert "plain,rebuild" in done.stdout
