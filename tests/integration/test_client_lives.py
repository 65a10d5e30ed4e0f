"""The client in real programs beside a real collector: how they end, how they multiply, what they do at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress

import pytest

from support.daemon import Daemon
from support.waiting import until

WATCHDOG_S = 60


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("lives")) as running:
        yield running


class Programs:
    """Python programs that have the client as ``ar``; killed after the test where they are still there."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.started: list[subprocess.Popen[str]] = []

    def start(self, code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", "import agentrund_client as ar\n" + textwrap.dedent(code)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.daemon.base,
            start_new_session=True,
            env={**self.daemon.env, "AGENTRUND_SOCKET": str(self.daemon.socket), "AGENTRUND_EXIT_TIMEOUT": "20"},
        )  # fmt: skip
        self.started.append(process)
        return process

    def run(self, code: str) -> str:
        process = self.start(code)
        out, err = process.communicate(timeout=WATCHDOG_S)
        assert (process.returncode, err) == (0, "")
        return out

    def rows(self, sessions: set[str]) -> dict[str, dict]:
        """The rows of sessions, once all of them have ended."""

        def ended():
            found = {row["session_id"]: row for row in self.daemon.rows() if row["session_id"] in sessions}
            over = all(row["status"] != "running" for row in found.values())
            return found if set(found) == sessions and over else None

        return until(ended, f"the ends of {len(sessions)} runs")

    def trace(self, session: str) -> list[dict]:
        return self.daemon.trace(self.rows({session})[session]["run_id"])


@pytest.fixture
def programs(daemon):
    found = Programs(daemon)
    yield found
    for process in found.started:
        # Its children too: they hold its pipes.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


# -- ends -----------------------------------------------------------------------------------------

KILLED = "process exited: killed by SIG"
ENDS = {
    "runs to its end": ("", 0, "ok", None),
    "sys.exit in a thread": (
        """
        import sys, threading
        thread = threading.Thread(target=sys.exit, args=(3,))
        thread.start()
        thread.join()
        """, 0, "ok", None,
    ),
    "daemon threads at the exit": (
        """
        import threading
        def for_ever():
            while True:
                ar.log("y" * 100)
        for _ in range(3):
            threading.Thread(target=for_ever, daemon=True).start()
        """, 0, "ok", None,
    ),
    "sys.exit with a code": ("import sys; sys.exit(3)", 3, "ok", None),
    "Ctrl-C": (
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT, "failed", "KeyboardInterrupt: ",
    ),
    "an unhandled exception": ("{}['x']", 1, "failed", "KeyError: 'x'"),
    "an assertion in the middle of a step": ("with ar.agent('a'): assert 0, 'no'", 1, "failed", "AssertionError: no"),
    "SIGTERM": ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15, "crashed", f"{KILLED}TERM"),
    "SIGTERM, handled": (
        """
        import os, signal, sys
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        os.kill(os.getpid(), signal.SIGTERM)
        """, 0, "ok", None,
    ),
    "os._exit": ("import os; os._exit(0)", 0, "crashed", "process exited: exit code 0"),
    # The process goes on as another program: it is over when that is.
    "os.execv": ("import os; os.execv('/bin/sh', ['sh', '-c', 'exit 5'])", 5, "crashed", "process exited: exit code 5"),
}  # fmt: skip


def test_every_way_to_end(programs):
    begin = """
    ar.run({name!r})
    for i in range(200):
        ar.log("x", i=i)
    """
    started = {
        name: programs.start(textwrap.dedent(begin).format(name=name) + textwrap.dedent(code))
        for name, (code, *_) in ENDS.items()
    }
    for name, process in started.items():
        process.communicate(timeout=WATCHDOG_S)
        assert process.returncode == ENDS[name][1], name
    rows = programs.rows(set(ENDS))
    told = {name: (rows[name]["status"], rows[name]["last_error"]) for name in ENDS}
    assert told == {name: (status, error) for name, (_, _, status, error) in ENDS.items()}
    for name in ENDS:
        logs = [r["payload"].get("i") for r in programs.trace(name) if r["type"] == "log"]
        assert logs[:200] == list(range(200)), name


# -- children -------------------------------------------------------------------------------------

CHILD = "import agentrund_client as ar; ar.run(); ar.log('child'); assert ar.flush(20); import os; os.kill(os.getpid(), 9)"
ALONE = """
from pathlib import Path
while any("futex" in path.read_text() for path in Path("/proc/self/task").glob("*/wchan")):
    pass
"""
"""Until no thread waits for the interpreter's lock: a fork that Python does not know of leaves it broken then."""
WAYS = {
    "fork": "pid = os.fork()\nif pid == 0: child()",
    "fork in C": f"import ctypes\n{ALONE}\npid = ctypes.PyDLL(None).fork()\nif pid == 0: child()",
    "posix_spawn": "pid = os.posix_spawn(sys.executable, [sys.executable, '-c', CHILD], os.environ)",
    "all descriptors": "import subprocess\nchild = subprocess.Popen([sys.executable, '-c', CHILD], close_fds=False); pid = child.pid",
    "spawn": "import subprocess\nchild = subprocess.Popen([sys.executable, '-c', CHILD], start_new_session=True); pid = child.pid",
}


def test_every_way_to_have_a_child_gives_a_source_that_dies_its_own_death(programs):
    code = """
    import os, sys
    CHILD = {child!r}
    run = ar.run({name!r})
    ar.log("parent")
    assert ar.flush(20)
    def child():
        ar.log("child")
        assert ar.flush(20)
        os.kill(os.getpid(), 9)
    """
    started = {
        way: programs.start(
            textwrap.dedent(code).format(child=CHILD, name=way)
            + how
            + "\nassert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9\nrun.end('ok')\nprint(pid, flush=True)\nos._exit(0)"
        )
        for way, how in WAYS.items()
    }
    for way, process in started.items():
        out, err = process.communicate(timeout=WATCHDOG_S)
        assert (process.returncode, err) == (0, ""), way
        child = int(out)
        trace = programs.trace(way)
        assert sorted(r["payload"]["message"] for r in trace if r["type"] == "log") == ["child", "parent"], (
            way
        )
        [joined] = [r["payload"] for r in trace if r["type"] == "source.join"]
        assert joined["pid"] == child, way
        [died] = [r["payload"] for r in trace if r["type"] == "source.exit" and r["status"] != "ok"]
        assert (died["source"], died["cause"]) == (joined["source"], f"{KILLED}KILL"), way
        assert programs.rows({way})[way]["status"] == "ok"


def test_a_grandchild_that_python_does_not_know_of_does_not_hide_a_death(programs, daemon):
    """It holds everything its parent had open, the client's socket too, and lives on."""
    process = programs.start(
        """
        import ctypes, time
        ar.run("survived")
        assert ar.flush(20)
        pid = ctypes.PyDLL(None).fork()
        if pid == 0:
            time.sleep(600)
        print(pid, flush=True)
        time.sleep(600)
        """
    )
    grandchild = int(process.stdout.readline())
    try:
        process.kill()
        row = programs.rows({"survived"})["survived"]
        assert (row["status"], row["last_error"]) == ("crashed", f"{KILLED}KILL")
        assert (
            "without run.end (process exited: killed by SIGKILL)"
            in (daemon.run_dir(row["run_id"]) / "agent.logs").read_text()
        )
        os.kill(grandchild, 0)  # it was there all the time
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_seeded_random_numbers_do_not_make_two_programs_one(programs):
    code = """
    import random
    random.seed(10)
    with ar.run("seeded-{k}"), ar.agent("a"):
        for i in range(50):
            ar.log("x", i=i)
    """
    started = [programs.start(textwrap.dedent(code).format(k=k)) for k in range(2)]
    for process in started:
        assert process.wait(WATCHDOG_S) == 0
    for k in range(2):
        logs = [r["payload"]["i"] for r in programs.trace(f"seeded-{k}") if r["type"] == "log"]
        assert logs == list(range(50))


# -- many things at once --------------------------------------------------------------------------


def test_a_storm_of_threads_keeps_each_threads_order(programs):
    programs.run(
        """
        import threading
        def work(k):
            for i in range(1000):
                ar.log("x", k=k, i=i)
        with ar.run("threads"):
            threads = [threading.Thread(target=work, args=(k,)) for k in range(32)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        """
    )
    logs = [r["payload"] for r in programs.trace("threads") if r["type"] == "log"]
    assert len(logs) == 32_000
    for k in range(32):
        assert [log["i"] for log in logs if log["k"] == k] == list(range(1000))


def test_tasks_with_a_run_each_do_not_mix(programs):
    programs.run(
        """
        import asyncio, random
        async def task(k):
            with ar.run(f"task-{k}"):
                async with ar.agent(f"agent-{k}"):
                    for i in range(20):
                        with ar.tool(f"tool-{k}"):
                            ar.log("x", k=k, i=i)
                            await asyncio.sleep(random.random() / 1000)
        async def main():
            await asyncio.gather(*map(task, range(50)))
        asyncio.run(main())
        """
    )
    rows = programs.rows({f"task-{k}" for k in range(50)})
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert len({row["run_id"] for row in rows.values()}) == 50
    for k in range(50):
        trace = programs.daemon.trace(rows[f"task-{k}"]["run_id"])
        told = [r for r in trace if not r["type"].startswith(("run.", "source."))]
        assert {r["name"] for r in told if r["type"] != "log"} == {f"agent-{k}", f"tool-{k}"}
        assert [(r["payload"]["k"], r["payload"]["i"]) for r in told if r["type"] == "log"] == [
            (k, i) for i in range(20)
        ]
        opened = {r["seq"]: r["type"] for r in trace}
        assert {opened[r["parent_seq"]] for r in told if r["type"] == "log"} == {"tool.call"}
        assert {opened[r["parent_seq"]] for r in told if r["type"] == "tool.call"} == {"agent.start"}
