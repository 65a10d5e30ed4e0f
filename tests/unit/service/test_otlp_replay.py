"""What is read before the intake journal is worked off: no more than it takes, and a little at a time."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import closing

import pytest

from agentrund.model.otlp import SpanKind
from agentrund.sequencer.otlp_runs import OtlpRuns
from agentrund.service.metrics import MetricsWriter
from agentrund.service.otlp_replay import OtlpReplay
from agentrund.service.otlp_runner import OtlpRunner
from support.inner_collector import Inner
from support.old_runs import write_old_runs
from support.otlp_build import mapped
from support.otlp_world import World

LLM = SpanKind.LLM


def run_of(inner: Inner, run_id: str, rq: int, spans: int = 3) -> None:
    """The folder of a run that has ended, as an OTLP sender's records left it."""
    world = World()
    world._rq = rq - 1
    world.take(*(mapped(n, 1, LLM) for n in range(2, spans + 1)), mapped(1))
    world.exit(cause="process exited: exit code 0")
    world.pass_time(5)
    folder = inner.folder / "runs" / run_id
    folder.mkdir()
    lines = [
        {
            "run_id": run_id,
            **{
                key: getattr(r, key)
                for key in ("seq", "attempt", "ts", "iso", "type", "name", "payload", "src")
            },
        }
        for r in world.run.records
    ]
    (folder / "trace.jsonl").write_text(
        "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    )


@pytest.fixture
def play(tmp_path):
    def run(story):
        async def whole():
            inner = Inner(tmp_path / "root")
            await story(inner)
            await inner.close()

        asyncio.run(whole())

    return run


def replayed(inner: Inner, rqs: list[int]) -> OtlpReplay:
    machine = OtlpRuns()
    metrics = MetricsWriter(inner.runs)
    runner = OtlpRunner(inner.runs, None, None, metrics)
    return OtlpReplay(inner.runs, machine, runner, rqs, metrics.stray)


def opened(inner: Inner, monkeypatch) -> list[str]:
    """The runs whose files are opened from here on."""
    found, apart = [], inner.runs.root.apart

    def counted(run_id):
        found.append(run_id)
        return apart(run_id)

    monkeypatch.setattr(inner.runs.root, "apart", counted)
    return found


NOW = int(time.time() * 1000)
MINE, OTHER, OLD = "20300101_000000_0000", "20300101_000000_0001", "20300101_000000_0002"


def test_without_a_request_no_run_is_looked_at(play, monkeypatch):
    async def story(inner):
        run_of(inner, MINE, NOW)
        monkeypatch.setattr(inner.runs.root, "run_ids", None)
        await replayed(inner, []).run()

    play(story)


def test_only_runs_written_since_the_oldest_request_are_opened(play, monkeypatch):
    async def story(inner):
        write_old_runs(inner.folder, 50)
        for run_id, rq in ((MINE, NOW), (OTHER, NOW + 1), (OLD, NOW)):
            run_of(inner, run_id, rq)
        os.utime(inner.folder / "runs" / OLD / "trace.jsonl", (NOW / 1000 - 3600, NOW / 1000 - 3600))
        replay, found = replayed(inner, [NOW, NOW + 2]), opened(inner, monkeypatch)
        await replay.run()
        assert sorted(found) == [MINE, MINE, OTHER], "the one with the request is read after it was searched"
        await replay.run()
        assert len(found) == 3, "once"

    play(story)


def test_a_run_that_cannot_be_read_hurts_nobody(play, caplog):
    async def story(inner):
        for run_id in (MINE, OTHER):
            run_of(inner, run_id, NOW)
        with (inner.folder / "runs" / MINE / "trace.jsonl").open("a") as file:
            file.write("nonsense\n")
        replay = replayed(inner, [NOW])
        await replay.run()
        assert f"{MINE}: what is stored of the intake journal cannot be looked up" in caplog.text
        assert len(replay._machine.traces) == 1

    play(story)


def test_a_long_run_is_read_between_turns_of_the_loop(play, monkeypatch):
    async def story(inner):
        run_of(inner, MINE, NOW, spans=1500)
        ticks = iter(n / 1000 for n in range(100_000))
        monkeypatch.setattr(inner.clock, "monotonic", lambda: next(ticks))
        turns = 0

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        with closing(inner.root.apart(MINE)) as files:
            records = list(files.records())
        await replayed(inner, [NOW])._restore(records, ended=True)
        other.cancel()
        assert turns > len(records) / 12, "a look at the clock for each record, and about ten a slice"

    play(story)
