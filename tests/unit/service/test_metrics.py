"""The writer of metric points: each in its run's file, else in that of no run; what the disk refuses waits."""

from __future__ import annotations

import asyncio
import json
import shutil

import pytest

from agentrund.service import maintenance
from agentrund.service.metrics import FILES, MetricsWriter
from agentrund.store import folder as folder_module
from support.inner_collector import Inner
from support.metric_points import metric_point


@pytest.fixture
def play(tmp_path):
    def run(story):
        async def whole():
            inner = Inner(tmp_path / "root")
            await story(inner, MetricsWriter(inner.runs))
            await inner.close()

        asyncio.run(whole())

    return run


def of_run(inner, run_id):
    text = (inner.folder / "runs" / run_id / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def stray(inner):
    found = sorted((inner.folder / ".agentrund" / "metrics").glob("*.jsonl"))
    return [json.loads(line) for path in found for line in path.read_text().splitlines()]


def test_points_go_where_they_belong_and_name_their_resource_once(play):
    async def story(inner, writer):
        run_id = inner.enter("a").run_id
        for n in range(3):
            writer.add(metric_point(n), run_id)
            writer.add(metric_point(n, source="other"), None)
        assert writer.waiting
        assert writer.commit()
        assert not writer.waiting
        found = of_run(inner, run_id)
        assert [(line["run_id"], line["src"]["i"]) for line in found] == [(run_id, n) for n in range(3)]
        assert ["resource" in line for line in found] == [True, False, False]
        assert [(line["run_id"], line["src"]["id"]) for line in stray(inner)] == [(None, "other")] * 3
        assert ["resource" in line for line in stray(inner)] == [True, False, False]

    play(story)


def test_what_the_disk_refuses_waits(play, monkeypatch):
    async def story(inner, writer):
        run_id = inner.enter("a").run_id
        writer.add(metric_point(0), run_id)
        writer.add(metric_point(1), None)

        def full(_fd, _data):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(folder_module.os, "write", full)
            assert not writer.commit()
            assert writer.waiting
        assert "No space left" in inner.runs.trouble.last_error
        assert writer.commit()
        assert (len(of_run(inner, run_id)), len(stray(inner))) == (1, 1)

    play(story)


def test_points_of_a_run_that_was_removed_are_of_no_run(play):
    async def story(inner, writer):
        run_id = inner.enter("a").run_id
        writer.add(metric_point(0), run_id)
        assert writer.commit()
        writer.add(metric_point(1), run_id)
        shutil.rmtree(inner.folder / "runs" / run_id)
        assert writer.commit()
        assert [(line["run_id"], line["src"]["i"]) for line in stray(inner)] == [(run_id, 1)]
        writer.add(metric_point(2), "20200101_000000_0000")
        assert writer.commit()
        assert [line["src"]["i"] for line in stray(inner)] == [1, 2]

    play(story)


def test_a_rebuild_cuts_a_torn_line_off(play):
    async def story(inner, writer):
        actor = inner.enter("a")
        writer.add(metric_point(0), actor.run_id)
        assert writer.commit()
        path = inner.folder / "runs" / actor.run_id / "metrics.jsonl"
        whole = path.read_bytes()
        path.write_bytes(whole + whole[:-9])
        await inner.close()
        maintenance.rebuild(inner.folder, actor.run_id)
        assert path.read_bytes() == whole
        (kept,) = (inner.folder / ".agentrund" / "quarantine").iterdir()
        assert kept.read_bytes() == whole[:-9]
        inner.start()

    play(story)


def test_a_few_files_are_remembered_and_all_of_them_written(play):
    async def story(inner, writer):
        for n in range(FILES + 10):
            run_id = f"20260830_080000_{n:04x}"
            (inner.folder / "runs" / run_id).mkdir()
            writer.add(metric_point(n), run_id)
            assert writer.commit()
            await inner.runs.syncing.drain()
        assert len(writer._files) == FILES
        written = list((inner.folder / "runs").glob("*/metrics.jsonl"))
        assert len(written) == FILES + 10

    play(story)
