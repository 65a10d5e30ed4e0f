"""The inside of a collector, without doors or processes: real runs on a real folder, a clock of the test's."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agentrund.model.event import Event
from agentrund.model.source import Arrival, Identity
from agentrund.service.recovery import Recovery
from agentrund.service.run_actor import RunActor
from agentrund.service.runs import Runs
from agentrund.service.survey import Survey
from agentrund.service.syncing import Interval
from agentrund.store.index_file import IndexFile
from agentrund.store.root import Root
from support.fake_clock import FakeClock


class Inner:
    """``enter`` a source, ``say`` an event, ``close`` and start again; use within a running loop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock(datetime(2026, 8, 30, 8, 0, tzinfo=UTC))
        self.start()

    def start(self) -> None:
        self.root = Root.open(self.folder, {"pid": 1})
        self.runs = Runs(self.root, IndexFile(self.root.folder), self.clock, Interval(), 8192)
        self.recovery = Recovery(self.runs)
        self.recovered = self.recovery.begin()

    async def survey(self) -> None:
        """Look at the whole root, as a collector does once its doors are open; bring back what that found."""
        survey = Survey(self.runs, self.recovery)
        await survey.run()
        await survey.close()
        self.recovered += self.recovery.again()

    async def close(self) -> None:
        await self.runs.close()
        await self.runs.syncing.close()
        self.root.close()

    async def restart(self) -> None:
        await self.close()
        self.start()

    def enter(self, source: str, session: str | None = None) -> RunActor:
        who = Arrival(source, Identity(7, 8, "boot", 0), session_id=session)
        return self.runs.place(who, self.runs.target(source, None, session))

    def say(self, actor: RunActor, source: str, n: int, kind: str = "log", **payload) -> None:
        self.clock.tick(0.1)
        actor.feed(source, Event(kind, n=n, payload=payload, status=payload.pop("status", None)))
        self.runs.commit(actor)

    async def settle(self, actor: RunActor) -> None:
        """Wait for the derived files, and for the disk."""
        await self.runs.finalising.settled(actor.run_id)
        await self.runs.syncing.drain()

    def status(self, run_id: str) -> str:
        return next(row["status"] for row in self.rows() if row["run_id"] == run_id)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the index."""
        lines = (self.folder / "index.jsonl").read_text().split("\n")
        return [json.loads(line) for line in lines if line.strip()]
