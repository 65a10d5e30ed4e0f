"""How a program ends: what is sent then, and how long that may take."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from .fake_collector import WATCHDOG


def types(collector):
    return [event["type"] for event in collector.events]


def test_without_an_explicit_end(run_agent, collector):
    run_agent("ar.run()\nar.log('a')")
    collector.wait(lambda: collector.of_type("run.end"))
    assert types(collector) == ["log", "run.end"]
    assert "status" not in collector.events[-1]


def test_an_uncaught_exception(run_agent, collector):
    _, err = run_agent(
        """
        run = ar.run()
        def broken():
            raise ValueError("boom")
        broken()
        """,
        code_expected=1,
    )
    assert "ValueError: boom" in err
    collector.wait(lambda: collector.of_type("run.end"))
    error, end = collector.events
    assert error["payload"]["error_type"] == "ValueError"
    assert "in broken" in error["payload"]["text"]
    assert end["status"] == "failed"


def test_the_applications_hook_is_still_called(run_agent, collector):
    out, _ = run_agent(
        """
        import sys
        sys.excepthook = lambda *args: print("mine", args[0].__name__)
        ar.run()
        raise KeyError("k")
        """,
        code_expected=1,
    )
    assert out == "mine KeyError\n"
    collector.wait(lambda: collector.of_type("run.end"))


def test_sys_exit_inside_the_block(run_agent, collector):
    run_agent("import sys\nwith ar.run():\n    sys.exit(0)")
    run_agent("import sys\nwith ar.run():\n    sys.exit(3)", code_expected=3)
    collector.wait(lambda: len(collector.of_type("run.end")) == 2)
    assert [event["status"] for event in collector.of_type("run.end")] == ["ok", "failed"]


def test_agents_own_exit_handlers_come_first(run_agent, collector):
    run_agent("import atexit\natexit.register(ar.log, 'bye')\nar.run()")
    collector.wait(lambda: collector.of_type("run.end"))
    assert types(collector) == ["log", "run.end"]


def test_os_exit_loses_nothing_that_was_sent(run_agent, collector):
    run_agent("import os\nar.run()\nfor i in range(500):\n    ar.log(i)\nos._exit(0)")
    collector.wait(lambda: len(collector.of_type("log")) == 500)


@pytest.mark.parametrize("repeat", range(10))
def test_killed_right_after_an_emit(agent_script, collector, repeat):
    """`emit` returned means: in the kernel. Also with a collector that is not reading just then."""
    collector.reading.clear()
    process = agent_script(
        """
        ar.run()
        with ar.agent("a"):
            for i in range(300):
                ar.log("x", i=i)
            print("done", flush=True)
            input()
        """
    )
    process.stdout.readline()
    process.kill()
    process.wait()
    collector.reading.set()
    collector.wait(lambda: len(collector.of_type("log")) == 300)


def test_signal_handlers_are_untouched(run_agent, collector):
    out, _ = run_agent(
        """
        import signal
        numbers = [n for n in signal.valid_signals()]
        before = [signal.getsignal(n) for n in numbers]
        import threading
        thread = threading.Thread(target=ar.run)
        thread.start()
        thread.join()
        ar.log("a")
        print([signal.getsignal(n) for n in numbers] == before)
        """
    )
    assert out == "True\n"


STALLED = """
import time, os
run = ar.run()
assert run.flush(20)
print("ready", flush=True)
input()
for i in range(200):
    ar.log("x" * 1000, i=i)
print("logged", flush=True)
"""


def test_exit_with_a_stopped_collector_is_bounded_and_loses_nothing(agent_script, collector_process, place):
    process = agent_script(STALLED, env={**os.environ, "AGENTRUND_EXIT_TIMEOUT": "0.2"})
    assert process.stdout.readline() == "ready\n"
    collector_process.signal(signal.SIGSTOP)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "logged\n"
    begun = time.monotonic()
    process.wait(WATCHDOG)
    assert time.monotonic() - begun < 15  # a watchdog; the bound is 0.2 s
    (path,) = (place / "spool").glob("*.jsonl")
    frames = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [frame["n"] for frame in frames[1:]] == list(range(1, 202))
    assert frames[-1]["type"] == "run.end"
    collector_process.signal(signal.SIGCONT)


def test_exit_waits_for_the_ack_and_then_leaves_no_file(run_agent, collector, place):
    run_agent("ar.run()\nfor i in range(2000):\n    ar.log('x' * 500)")
    assert len(collector.of_type("log")) == 2000
    assert len(collector.of_type("run.end")) == 1
    assert not (place / "spool").exists()


def test_the_exit_timeout_is_honoured(run_agent, collector, place):
    collector.acks = False
    code = """
    import time, atexit
    begun = time.monotonic()
    from agentrund_client import _process
    ar.run()
    ar.log("a")
    begun = time.monotonic()
    _process.shut_down()
    print(time.monotonic() - begun)
    """
    out, _ = run_agent(code, env={**os.environ, "AGENTRUND_EXIT_TIMEOUT": "0.15"})
    assert 0.1 < float(out) < 10
    out, _ = run_agent(code, env={**os.environ, "AGENTRUND_EXIT_TIMEOUT": "0"})
    assert float(out) < 10
    assert len(list((place / "spool").glob("*.jsonl"))) == 2


def test_the_thread_does_not_keep_the_program_alive(run_agent, collector):
    collector.acks = False
    run_agent("run = ar.run()\nar.log('a')\nassert not run.flush(0.01)")


def test_no_busy_waiting(run_agent, collector, place):
    """An idle client sleeps: with a collector, without one, and after a burst."""
    code = """
    import resource, time
    run = ar.run()
    for _ in range(1000):
        ar.log("x")
    run.flush(20)
    time.sleep(0.3)
    def used():
        return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw, time.process_time()
    before = used()
    time.sleep(0.5)
    after = used()
    print(after[0] - before[0], after[1] - before[1])
    """
    for _ in range(2):
        out, _ = run_agent(code)
        switches, seconds = out.split()
        assert int(switches) < 60
        assert float(seconds) < 0.2  # a loop that spins needs all of the 0.5 s
        collector.stop()


def test_uncaught_in_a_step_is_reported_once(run_agent, collector):
    run_agent("ar.run()\nwith ar.agent('a'):\n    raise ValueError('x')", code_expected=1)
    collector.wait(lambda: collector.of_type("run.end"))
    assert types(collector) == ["agent.start", "error", "agent.end", "run.end"]
    assert collector.events[-1]["status"] == "failed"


def test_stderr_stays_clean(run_agent, collector):
    out, err = run_agent("with ar.run(), ar.agent('a'):\n    ar.log('x')")
    assert (out, err) == ("", "")


def test_a_program_without_threads_left(run_agent, collector):
    """Where no thread can be started the exit turns the loop itself."""
    run_agent(
        """
        import threading
        def no(self):
            raise RuntimeError("can't start new thread")
        threading.Thread.start = no
        run = ar.run()
        ar.log("a")
        assert run.flush(20)
        """
    )
    collector.wait(lambda: collector.of_type("run.end"))
    assert types(collector) == ["log", "run.end"]


def test_switched_off_leaves_no_trace(run_agent, place):
    out, err = run_agent(
        """
        import sys, threading
        hook = sys.excepthook
        with ar.run() as run, ar.agent("a") as step:
            step.output = 3
            ar.log("x")
        print(threading.active_count(), sys.excepthook is hook, ar.child_env())
        """,
        env={**os.environ, "AGENTRUND_DISABLED": "1"},
    )
    assert (out, err) == ("1 True {}\n", "")
    assert not (place / "spool").exists()


def test_import_is_light():
    code = """
import sys
bare = set(sys.modules)
import agentrund_client
print(sorted(set(sys.modules) - bare))
"""
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(_client_path())})  # fmt: skip
    loaded = {name.partition(".")[0] for name in eval(done.stdout)}
    heavy = {
        "asyncio", "subprocess", "inspect", "logging", "pathlib", "typing_extensions", "traceback", "tempfile",
        "multiprocessing", "concurrent", "email", "urllib", "http", "ssl", "random", "hashlib", "dataclasses",
        "typing", "contextlib",
    }  # fmt: skip
    assert loaded & heavy == set()
    third = {name for name in loaded if name not in sys.stdlib_module_names}
    assert third == {"agentrund_client"}
    assert "agentrund_client.redact" not in done.stdout


def _client_path():
    import agentrund_client

    return [os.path.dirname(os.path.dirname(agentrund_client.__file__))]
