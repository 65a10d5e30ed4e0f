"""The end of a process, and the kernel's word on it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys

import pytest

from agentrund.model.source import Identity
from agentrund.service.process_watch import ProcessWatch, describe, start_time

SLEEP = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def spawn(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(list(command) or SLEEP, stdin=subprocess.PIPE)


def identity(process) -> Identity:
    return Identity(process.pid, start_time(process.pid))


async def cause_of(process, end) -> str:
    watch, told = ProcessWatch(), asyncio.get_running_loop().create_future()
    assert watch.watch(identity(process), told.set_result)
    end()
    try:
        return await asyncio.wait_for(told, 20)
    finally:
        watch.close()


@pytest.mark.parametrize("reap", [True, False])
def test_a_signal_is_named(reap):
    with spawn() as process:

        def end():
            process.kill()
            if reap:
                process.wait()

        assert asyncio.run(cause_of(process, end)) == "process exited: killed by SIGKILL"


def test_an_exit_code_is_named():
    with spawn(sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(3)") as process:
        assert asyncio.run(cause_of(process, process.stdin.close)) == "process exited: exit code 3"


def test_everyone_who_watches_a_process_is_told_once():
    async def play() -> list[str]:
        told: list[str] = []
        with spawn() as process:
            watch = ProcessWatch()
            done = asyncio.Event()
            watch.watch(identity(process), told.append)
            watch.watch(identity(process), lambda cause: (told.append(cause), done.set()))
            assert len(watch) == 1
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(done.wait(), 20)
            assert len(watch) == 0
            return told

    assert asyncio.run(play()) == ["process exited: killed by SIGTERM"] * 2


def test_a_pid_that_is_somebody_elses_now_is_not_watched():
    async def play() -> bool:
        watch = ProcessWatch()
        return watch.watch(Identity(os.getpid(), start_time(os.getpid()) - 1), lambda _cause: None)

    assert asyncio.run(play()) is False


def test_looking_delivers_a_death_at_once():
    async def play() -> list[str]:
        told: list[str] = []
        with spawn() as process:
            watch, who = ProcessWatch(), identity(process)
            watch.watch(who, told.append)
            watch.look(who)
            assert told == []
            process.kill()
            process.wait()
            watch.look(who)
            watch.close()
        return told

    assert asyncio.run(play()) == ["process exited: killed by SIGKILL"]


def test_a_process_is_described_by_what_proc_says():
    found = describe(os.getpid())
    assert found["argv"][0]
    assert found["cwd"] == os.getcwd()
    assert describe(2**22 + 1) == {}


def test_what_cannot_be_seen_is_no_death(monkeypatch):
    def no_descriptors(*_args):
        raise OSError(errno.EMFILE, "Too many open files")

    async def play() -> None:
        watch = ProcessWatch()
        with monkeypatch.context() as patch:
            patch.setattr("agentrund.service.process_watch.with_reserve", no_descriptors)
            with pytest.raises(OSError, match="Too many"):
                start_time(os.getpid())
        who = Identity(os.getpid(), start_time(os.getpid()))
        with monkeypatch.context() as patch:
            patch.setattr(os, "pidfd_open", no_descriptors)
            with pytest.raises(OSError, match="Too many"):
                watch.watch(who, lambda _cause: None)
        assert watch.watch(who, lambda _cause: None)
        watch.close()

    asyncio.run(play())
