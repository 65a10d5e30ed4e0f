"""Runs under faults: what the disk refuses waits, what is gone or damaged hurts nobody else."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from contextlib import contextmanager

import pytest

from agentrund.model.errors import Rejected, RunUnusable, Unavailable
from agentrund.model.event import Event
from agentrund.service import run_entries, runs
from agentrund.store import folder as folders
from support.inner_collector import Inner


@pytest.fixture
def play(tmp_path):
    """Run an async story with a collector's inside."""

    def run(story):
        async def whole():
            inner = Inner(tmp_path / "root")
            await story(inner)
            await inner.close()

        asyncio.run(whole())

    return run


@contextmanager
def full_disk(monkeypatch):
    """Every write fails."""

    def refuse(_fd, _data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(folders.os, "write", refuse)
        yield


def test_a_late_event_is_not_acknowledged_before_it_is_stored(play, monkeypatch):
    async def story(inner):
        actor = inner.enter("a", "s")
        inner.say(actor, "a", 1, "run.end")
        with full_disk(monkeypatch):
            with pytest.raises(Unavailable):
                inner.say(actor, "a", 2)
            with pytest.raises(Unavailable):
                inner.enter("a", "s")
        inner.enter("a", "s")
        assert b'"n":2' in (inner.folder / "runs" / actor.run_id / "trace.jsonl").read_bytes()

    play(story)


def test_a_new_run_costs_no_look_at_the_rows_of_the_others(play, monkeypatch):
    """There may be a million; one that has ended is looked for when it goes on."""

    async def story(inner):
        looks = []
        monkeypatch.setattr(inner.runs.index, "_find", looks.append)
        for n in range(3):
            actor = inner.enter(f"s{n}")
            inner.say(actor, f"s{n}", 1, "run.end")
            await inner.settle(actor)
        assert looks == []
        rows = (inner.folder / "index.jsonl").read_text().split("\n")
        assert [json.loads(row)["status"] for row in rows if row.strip()] == ["ok"] * 3

    play(story)


def test_a_run_whose_last_words_wait_for_their_commit_is_not_let_go_of(play, monkeypatch):
    """Who said them may have left already; a second actor of the run would write beside the first."""
    monkeypatch.setattr(runs, "UNUSED_S", 0.0)

    async def story(inner):
        actor = inner.enter("a")
        inner.say(actor, "a", 1, "run.end")
        await inner.settle(actor)
        actor = inner.enter("a")
        actor.feed("a", Event("log", n=2, payload={}))
        inner.runs.release(actor.run_id)
        assert inner.runs.resident(actor.run_id) is actor
        assert inner.runs.actor(actor.run_id) is actor
        inner.runs.commit(actor)
        await inner.settle(actor)
        async with asyncio.timeout(20):
            while inner.runs.resident(actor.run_id):  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0)
        assert b'"n":2' in (inner.folder / "runs" / actor.run_id / "trace.jsonl").read_bytes()

    play(story)


def test_an_end_that_is_stored_only_at_the_stop_is_derived(play, monkeypatch):
    async def story(inner):
        actor = inner.enter("a")
        with full_disk(monkeypatch), pytest.raises(Unavailable):
            inner.say(actor, "a", 1, "run.end")
        await inner.restart()
        assert inner.status(actor.run_id) == "ok"
        assert (inner.folder / "runs" / actor.run_id / "analytics.json").exists()

    play(story)


def test_a_run_that_cannot_begin_leaves_nothing(play, monkeypatch):
    async def story(inner):
        inner.enter("first")
        with full_disk(monkeypatch), pytest.raises(Unavailable):
            inner.enter("second")
        assert len(inner.root.run_ids()) in (1, 2)
        actor = inner.enter("second")
        inner.say(actor, "second", 1)
        assert len(inner.root.run_ids()) == 2
        assert {row["run_id"] for row in inner.rows()} == set(inner.root.run_ids())

    play(story)


@contextmanager
def failing_disk(monkeypatch):
    """Every sync fails."""

    def refuse(_fd):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(folders.os, "fdatasync", refuse)
        yield


def test_a_run_is_kept_at_hand_until_the_disk_has_it(play, monkeypatch):
    async def story(inner):
        actor = inner.enter("a", "s")
        with failing_disk(monkeypatch):
            inner.say(actor, "a", 1, "run.end")
            await inner.settle(actor)
            assert inner.runs.resident(actor.run_id) is actor
        await inner.settle(actor)
        inner.runs.retry()
        await inner.settle(actor)
        assert inner.runs.resident(actor.run_id) is None

    play(story)


def test_a_run_says_once_a_minute_that_a_sync_of_it_failed(play, monkeypatch):
    async def story(inner):
        actor = inner.enter("a", "s")
        n = 0
        for minutes in (0, 0, 2):
            inner.clock.tick(minutes * 60)
            inner.say(actor, "a", n := n + 1)
            with failing_disk(monkeypatch):
                for _ in range(2):
                    await inner.runs.syncing.drain()
                with pytest.raises(Unavailable):
                    inner.say(actor, "a", n := n + 1)
            await inner.runs.syncing.drain()
            inner.runs.retry()
        lines = (inner.folder / "runs" / actor.run_id / "trace.jsonl").read_bytes().splitlines()
        records = [json.loads(line) for line in lines]
        assert [r["seq"] for r in records] == list(range(1, len(records) + 1))
        assert [r["src"]["n"] for r in records if "n" in (r.get("src") or {})] == list(range(1, n + 1))
        assert sum("sync_failed" in r["payload"] for r in records) == 2

    play(story)


def test_a_damaged_run_of_a_session_gives_way_to_a_new_one(play):
    async def story(inner):
        actor = inner.enter("a", "s")
        inner.say(actor, "a", 1, "run.end")
        await inner.settle(actor)
        trace = inner.folder / "runs" / actor.run_id / "trace.jsonl"
        trace.write_bytes(trace.read_bytes().replace(b'"seq":2', b'"seq":x'))
        await inner.restart()
        with pytest.raises(RunUnusable):
            inner.runs.actor(actor.run_id)
        again = inner.enter("b", "s")
        assert again.run_id != actor.run_id
        inner.say(again, "b", 1)

    play(story)


def test_a_run_whose_folder_is_gone_is_given_up_once(play):
    async def story(inner):
        actor = inner.enter("a", "s")
        inner.say(actor, "a", 1)
        shutil.rmtree(inner.folder / "runs" / actor.run_id)
        with pytest.raises(RunUnusable):
            inner.say(actor, "a", 2, "run.end")
        assert inner.runs.resident(actor.run_id) is None
        assert [row["run_id"] for row in inner.rows()] == []

    play(story)


def test_a_derivation_that_meets_a_bug_is_tried_once(play, monkeypatch):
    async def story(inner):
        calls = []

        def broken(_files, _limit):
            calls.append(1)
            raise ZeroDivisionError

        monkeypatch.setattr("agentrund.service.finalising.finalise", broken)
        actor = inner.enter("a")
        inner.say(actor, "a", 1, "run.end")
        await inner.settle(actor)
        assert (len(calls), len(inner.runs.finalising)) == (1, 0)

    play(story)


def test_rows_that_were_lost_are_written_again_and_open_runs_come_back(play):
    async def story(inner):
        actors = [inner.enter(f"s{n}", f"e{n}") for n in range(4)]
        for n, actor in enumerate(actors):
            inner.say(actor, f"s{n}", 1)
        await inner.close()
        index = inner.folder / "index.jsonl"
        lines = index.read_bytes().splitlines(keepends=True)
        index.write_bytes(lines[0] + lines[1][:100])
        inner.start()
        await inner.survey()
        assert sorted(actor.run_id for actor in inner.recovered) == sorted(actor.run_id for actor in actors)
        assert {inner.status(actor.run_id) for actor in actors} == {"running"}

    play(story)


def test_files_that_lag_behind_their_trace_are_made_again_at_the_start(play):
    async def story(inner):
        actor = inner.enter("a")
        inner.say(actor, "a", 1, "run.end")
        await inner.settle(actor)
        run = inner.folder / "runs" / actor.run_id
        before = {name: (run / name).read_bytes() for name in ("analytics.json", "agent.logs")}
        late = inner.runs.actor(actor.run_id)
        inner.say(late, "a", 2, "error", error_type="Boom", error="late")
        await inner.settle(late)
        wanted = {name: (run / name).read_bytes() for name in before}
        assert wanted != before
        for name, data in before.items():
            (run / name).write_bytes(data)
        past = (run / "trace.jsonl").stat().st_mtime - 1
        os.utime(run / "analytics.json", (past, past))
        await inner.restart()
        await inner.survey()
        assert {name: (run / name).read_bytes() for name in before} == wanted

    play(story)


def test_a_resume_says_running_before_its_record_is_there(play, monkeypatch):
    async def story(inner):
        actor = inner.enter("a", "s")
        inner.say(actor, "a", 1, "run.end")
        await inner.settle(actor)
        again = inner.runs.actor(actor.run_id)
        seen = []
        commit = again.commit
        monkeypatch.setattr(again, "commit", lambda: (seen.append(inner.status(actor.run_id)), commit()))
        inner.enter("b", "s")
        assert seen == ["running"]
        inner.runs.entries.refresh()
        meta = json.loads((inner.folder / "runs" / actor.run_id / "meta.json").read_text())
        assert [a["outcome"] for a in meta["attempts"]] == ["ok", "running"]

    play(story)


def test_metadata_that_lists_all_attempts_is_not_written_for_each_of_them(play, monkeypatch):
    async def story(inner):
        inner.say(inner.enter("first", "s"), "first", 1, "run.end")
        written, encode = [], run_entries.meta.encode
        monkeypatch.setattr(run_entries.meta, "encode", lambda state: written.append(state) or encode(state))
        for n in range(50):
            inner.say(inner.enter(f"source-{n}", "s"), f"source-{n}", 1, "run.end")
        last = inner.enter("last", "s")
        inner.runs.entries.refresh()
        assert len(written) == 1
        meta = json.loads((inner.folder / "runs" / last.run_id / "meta.json").read_text())
        assert len(meta["attempts"]) == 52

    play(story)


def test_an_unknown_run_is_refused(play):
    async def story(inner):
        with pytest.raises(Rejected):
            inner.runs.target("a", "20200101_000000_0000", None)

    play(story)


def test_the_row_of_a_run_that_is_open_at_the_stop_tells_all_of_it(play):
    async def story(inner):
        actor = inner.enter("a")
        inner.say(actor, "a", 1, "tool.call")
        inner.say(actor, "a", 2, "error", error_type="Boom", error="late")
        await inner.close()
        [row] = inner.rows()
        assert (row["status"], row["tool_calls"], row["errors"]) == ("running", 1, 1)
        inner.start()

    play(story)


def test_the_row_of_an_open_run_follows_it(play):
    async def story(inner):
        actor = inner.enter("a")
        for n in range(1, 4):
            inner.say(actor, "a", n, "llm.prompt")
        inner.runs.entries.refresh()
        [row] = inner.rows()
        assert (row["status"], row["llm_calls"]) == ("running", 3)

    play(story)


def test_two_hundred_runs_in_one_second_and_a_clock_that_goes_back(tmp_path):
    """Ids are unique and sort by creation, also after a restart in the past of the newest."""

    async def play() -> list[str]:
        inner, made = Inner(tmp_path), []
        for number in range(200):
            made.append(inner.enter(f"a{number}").run_id)
        for number, step in enumerate((-3600, 7200, 10 * 365 * 86400, -10 * 365 * 86400)):
            inner.clock.tick(step)
            made.append(inner.enter(f"b{number}").run_id)
        await inner.restart()
        made.append(inner.enter("c").run_id)
        await inner.close()
        return made

    made = asyncio.run(play())
    assert made == sorted(set(made))
