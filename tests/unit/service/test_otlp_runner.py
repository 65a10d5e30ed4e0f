"""Which processes of OTLP senders are watched, and which deaths are only imagined."""

from __future__ import annotations

import asyncio
import os
import resource

import pytest

from agentrund.model.source import Identity
from agentrund.service.otlp_runner import OtlpRunner
from agentrund.service.process_watch import ProcessWatch, boot_id, start_time

ME = Identity(os.getpid(), start_time(os.getpid()), boot_id(), os.getuid())


@pytest.mark.parametrize(
    ("identity", "watched", "told"),
    [
        (ME, 1, []),
        (Identity(), 0, []),
        (Identity(1, pid_from="client"), 0, []),
        (Identity(ME.pid, ME.pid_start, "another boot", ME.uid), 0, ["host restarted"]),
        (Identity(ME.pid, ME.pid_start - 1, ME.boot_id, ME.uid), 0, ["process exited"]),
    ],
)
def test_only_a_process_that_the_kernel_named_can_die(identity, watched, told):
    async def play() -> tuple[int, list[str]]:
        watch, heard = ProcessWatch(), []
        runner = OtlpRunner(None, watch, None, None)
        runner.on_exit = lambda _identity, cause: heard.append(cause)
        runner.watch_over(identity)
        await asyncio.sleep(0)
        count = len(watch)
        watch.close()
        return count, heard

    assert asyncio.run(play()) == (watched, told)


def test_a_process_that_cannot_be_seen_now_is_looked_for_again():
    async def play() -> list[int]:
        watch = ProcessWatch()
        runner = OtlpRunner(None, watch, None, None)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            runner.watch_over(ME)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        before = len(watch)
        runner.watch_again()
        after = len(watch)
        watch.close()
        return [before, after]

    assert asyncio.run(play()) == [0, 1]
