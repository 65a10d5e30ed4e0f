"""Forked and spawned children: sources of their own in the same run, and no hang whatever the parent was doing."""

from __future__ import annotations

import json
import os

import pytest

from .fake_collector import WATCHDOG, FakeCollector

BUSY_PARENT = """
import os, sys, threading
run = ar.run("s")
assert run.flush(20)
stop = threading.Event()
def busy():
    while not stop.is_set():
        ar.log("parent")
threads = [threading.Thread(target=busy) for _ in range(2)]
with ar.agent("root"):
    for thread in threads:
        thread.start()
    children = []
    for k in range(4):
        pid = os.fork()
        if pid == 0:
            for i in range(100):
                ar.log("child", k=k, i=i)
            with ar.tool("t"):
                pass
            assert ar.flush(20)
            os._exit(7)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    stop.set()
    for thread in threads:
        thread.join()
assert codes == [7] * 4, codes
"""


def test_forks_while_threads_are_sending(run_agent, collector):
    run_agent(BUSY_PARENT)
    collector.wait(lambda: collector.of_type("run.end"))
    assert len(collector.hellos) == 5
    assert len(set(collector.runs.values())) == 1
    assert collector.jumps == []
    root = collector.of_type("agent.start")[0]
    parent = collector.hellos[0]["source"]
    for hello in collector.hellos[1:]:
        events = collector.stored[hello["source"]]
        assert [event["n"] for event in events] == list(range(1, 103))
        assert [event["payload"]["i"] for event in events[:100]] == list(range(100))
        assert {event["parent"] for event in events[:101]} == {f"{parent}/{root['span']}"}
        assert hello["parent"] == f"{parent}/{root['span']}"
        assert hello["run_id"] == collector.runs[parent]


def test_the_same_without_a_collector(run_agent, place):
    run_agent(BUSY_PARENT.replace("assert run.flush(20)", "").replace("assert ar.flush(20)", "ar.flush(0)"))
    files = sorted((place / "spool").glob("*.jsonl"))
    assert len(files) == 5
    children = 0
    for file in files:
        hello, *events = [json.loads(line) for line in file.read_bytes().splitlines()]
        assert hello["source"] == file.stem
        assert [event["n"] for event in events] == list(range(1, len(events) + 1))
        children += hello["parent"] is not None
    assert children == 4


def test_a_fork_that_calls_no_hooks_is_noticed_by_the_pid(run_agent, collector):
    """As under servers that fork in C and do not tell Python."""
    run_agent(
        """
        import ctypes, os
        run = ar.run("s")
        assert run.flush(20)
        pid = ctypes.PyDLL(None).fork()
        if pid == 0:
            ar.log("child")
            os._exit(0 if ar.flush(20) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        ar.log("parent")
        """
    )
    collector.wait(lambda: collector.of_type("run.end"))
    parent, child = collector.hellos
    assert parent["pid"] != child["pid"]
    assert collector.runs[parent["source"]] == collector.runs[child["source"]]
    assert [event["type"] for event in collector.stored[parent["source"]]] == ["log", "run.end"]
    assert [event["type"] for event in collector.stored[child["source"]]] == ["log"]


def test_a_child_lets_go_of_what_its_parent_had_open(run_agent, collector, place):
    """A child that lives on must not keep the parent's connection open, nor its spool file locked."""
    code = """
    import os
    run = ar.run("s")
    ar.log("x")
    run.flush(20)
    pid = os.fork()
    if pid == 0:
        open_now = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
        os._exit(sum(name.startswith("socket:") or name.endswith(".jsonl") for name in open_now))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    """
    run_agent(code)
    collector.stop()
    run_agent(code)
    assert list((place / "spool").glob("*.jsonl"))


def test_a_child_that_says_nothing_is_no_source(run_agent, collector):
    run_agent(
        """
        import os, sys
        with ar.run("s"):
            ar.log("parent")
            if os.fork() == 0:
                sys.exit(0)
            os.wait()
        """
    )
    collector.wait(lambda: collector.of_type("run.end"))
    assert len(collector.hellos) == 1


def test_a_child_that_leaves_its_parents_blocks_closes_nothing_of_them(run_agent, collector):
    run_agent(
        """
        import os
        with ar.run("s"):
            with ar.agent("a"):
                pid = os.fork()
                ar.log("child" if pid == 0 else "parent")
            if pid:
                os.waitpid(pid, 0)
        """
    )
    collector.wait(lambda: len(collector.of_type("run.end")) == 2)
    child = next(hello["source"] for hello in collector.hellos if hello["parent"])
    assert [event["type"] for event in collector.stored[child]] == ["log", "run.end"]
    parent = next(hello["source"] for hello in collector.hellos if not hello["parent"])
    assert [event["type"] for event in collector.stored[parent]] == [
        "agent.start",
        "log",
        "agent.end",
        "run.end",
    ]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(run_agent, collector, method):
    run_agent(
        f"""
        import multiprocessing
        def work(k):
            with ar.agent(f"worker-{{k}}"):
                for i in range(100):
                    ar.log("x", k=k, i=i)
        if __name__ == "__main__":
            run = ar.run("s")
            assert run.flush(20)
            context = multiprocessing.get_context("{method}")
            children = [context.Process(target=work, args=(k,)) for k in range(3)]
            for child in children:
                child.start()
            for child in children:
                child.join(20)
                assert child.exitcode == 0
        """
    )
    collector.wait(lambda: len(collector.of_type("run.end")) == 4)
    assert len(set(collector.runs.values())) == 1
    assert len(collector.hellos) == 4
    for hello in collector.hellos[1:]:
        kinds = [event["type"] for event in collector.stored[hello["source"]]]
        assert kinds == ["agent.start", *["log"] * 100, "agent.end", "run.end"]


def test_a_pool_worker_that_fails_says_why(run_agent, collector):
    run_agent(
        """
        import multiprocessing, os, sys
        def work():
            ar.log("x")
            sys.stderr = open(os.devnull, "w")
            raise ValueError("in the worker")
        if __name__ == "__main__":
            run = ar.run("s")
            child = multiprocessing.get_context("fork").Process(target=work)
            child.start()
            child.join(20)
            assert child.exitcode == 1
        """
    )
    collector.wait(lambda: len(collector.of_type("run.end")) == 2)
    (error,) = collector.of_type("error")
    assert error["payload"]["error"] == "in the worker"


CHILD = "import agentrund_client as ar; ar.run(); ar.log('child'); ar.flush(20)"


def test_a_subprocess_joins_by_the_environment(run_agent, collector):
    run_agent(
        f"""
        import subprocess, sys
        with ar.run("s") as run:
            assert run.flush(20)
            with ar.agent("a"):
                subprocess.run([sys.executable, "-c", {CHILD!r}], check=True)
                subprocess.run([sys.executable, "-c", {CHILD!r}], check=True, env=ar.child_env())
        """.replace("env=ar.child_env()", "env={**__import__('os').environ, **ar.child_env()}")
    )
    collector.wait(lambda: len(collector.of_type("run.end")) == 3)
    assert len(set(collector.runs.values())) == 1
    first, second = collector.of_type("log")
    parent, span = collector.hellos[0]["source"], collector.of_type("agent.start")[0]["span"]
    assert "parent" not in first
    assert second["parent"] == f"{parent}/{span}"
    assert [hello["parent"] for hello in collector.hellos] == [None, f"{parent}/", f"{parent}/{span}"]


def test_the_environment_is_put_back(client, collector, monkeypatch):
    with client.run() as run:
        assert run.flush(20)
        assert os.environ["AGENTRUND_RUN_ID"] == run.run_id
        assert os.environ["AGENTRUND_PARENT"] == f"{run.source}/"
        with client.agent("a") as step:
            assert client.child_env() == {
                "AGENTRUND_RUN_ID": run.run_id, "AGENTRUND_PARENT": f"{run.source}/{step.span}",
            }  # fmt: skip
        with client.run("another") as other:
            assert other.flush(20)
            assert os.environ["AGENTRUND_RUN_ID"] == run.run_id != other.run_id
    assert "AGENTRUND_RUN_ID" not in os.environ
    assert "AGENTRUND_PARENT" not in os.environ


def test_a_grandchild_goes_below_the_span_its_grandparent_gave(client, collector, monkeypatch):
    monkeypatch.setenv("AGENTRUND_PARENT", "other/3")
    with client.run():
        client.log("top")
        assert os.environ["AGENTRUND_PARENT"] == "other/3"
    collector.wait(lambda: collector.of_type("run.end"))
    assert collector.of_type("log")[0]["parent"] == "other/3"
    assert os.environ["AGENTRUND_PARENT"] == "other/3"


def test_descriptors_do_not_reach_executed_children(agent_script, place):
    fake = FakeCollector(f"{place}/s.sock").start()
    process = agent_script(
        """
        import os, subprocess, sys
        run = ar.run()
        assert run.flush(20)
        names = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, close_fds=False).stdout
        print(names)
        """
    )
    out, _ = process.communicate(timeout=WATCHDOG)
    assert "socket:" not in out
    fake.stop()
