"""Make the example root: real writers, a script of events, a fixed clock. ``python make_example.py FOLDER``.

The result is kept in the repository as ``example_root`` and quoted in README.md; a test makes it again
and compares byte for byte. After a wanted change of a format: ``make golden``, and read the difference.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from agentrund.formats import layout, navigate
from agentrund.model.event import Event, Json
from agentrund.model.otlp import MappedMetric, Metric, MetricItem, Point, Resource, Scope
from agentrund.model.source import Arrival, Identity
from agentrund.service.metrics import MetricsWriter
from agentrund.service.run_actor import RunActor
from agentrund.service.runs import Runs
from agentrund.service.syncing import Interval
from agentrund.store.index_file import IndexFile
from agentrund.store.root import Root

sys.path.insert(0, str(Path(__file__).parent.parent))
from support.fake_clock import KATHMANDU, FakeClock

SESSION = "sess_kaggle_eda_7c"
PLANNER_PROMPT = "You are the planner. The data set has the columns below; plan the analysis.\n\n" + "".join(
    f"column_{n:03d}: float64, 2930 non-null, mean {n * 17 % 101}.{n % 10}, std {n * 7 % 13}.{n % 7}\n"
    for n in range(1, 161)
)
TRACEBACK = """Traceback (most recent call last):
  File "/srv/eda/executor.py", line 88, in step
    return self.run_python(code)
  File "/srv/eda/executor.py", line 131, in run_python
    raise RuntimeError(f"executor gave up after {tries} attempts")
RuntimeError: executor gave up after 2 attempts"""


class Sender:
    """One source of a run, with its counter."""

    def __init__(self, stage: Stage, actor: RunActor, source: str) -> None:
        self.stage, self.actor, self.source = stage, actor, source
        self.n = 0

    def send(self, after: float, kind: str, name: str | None = None, **keys: Any) -> None:
        """One event, ``after`` seconds after the one before."""
        self.stage.clock.tick(after)
        self.n += 1
        payload = keys.pop("payload", {})
        self.actor.feed(self.source, Event(kind, name, payload=payload, n=self.n, **keys))
        self.actor.commit()


class Stage:
    """A collector's inside, without doors: the runs and their clock."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock(datetime(2026, 8, 30, 14, 17, 5, tzinfo=KATHMANDU))
        self.root = Root.open(folder, {"pid": 4000})
        self.root.write_once(layout.NAVIGATE, navigate.text())
        self.runs = Runs(
            self.root,
            IndexFile(self.root.folder),
            self.clock,
            Interval(),
            8192,
            randbelow=lambda _limit: 0xA1B2 & 0x7FFF,
        )

    def enter(
        self,
        source: str,
        pid: int,
        *,
        session: str | None = None,
        run_id: str | None = None,
        door: str = "sock",
        **metadata: Any,
    ) -> Sender:
        """A process says hello."""
        identity = Identity(pid, pid * 3, "0d9c5b1e-8a53-4a52-9d5e-3f6c1b7a2e10", 1000)
        who = Arrival(source, identity, door, session, metadata)
        actor = self.runs.place(who, self.runs.target(source, run_id, session))
        return Sender(self, actor, source)

    def die(self, sender: Sender, cause: str) -> None:
        """A process is gone."""
        sender.actor.leave(sender.source, cause)
        sender.actor.commit()

    async def close(self) -> None:
        """Everything derived, everything closed."""
        await self.runs.close()
        await self.runs.syncing.close()
        self.root.close()


async def make(folder: Path) -> None:
    """The whole example."""
    stage = Stage(folder)
    one_line(stage)
    two_processes(stage)
    stage.clock.wall = datetime(2026, 8, 30, 14, 22, 33, tzinfo=KATHMANDU).timestamp()
    killed_and_resumed(stage)
    measured(stage)
    await stage.close()
    # The collector's own state is not part of a root as people read it.
    shutil.rmtree(folder / layout.STATE)


def hello() -> Json:
    """What the analysis says of itself."""
    return {
        "framework": "langgraph",
        "framework_version": "0.6.1",
        "model": "claude-sonnet-5",
        "task": "explore the house prices",
        "tags": ["nightly"],
        "argv": ["agent.py", "--fast"],
        "cwd": "/srv/eda",
        "python": "3.12.4",
        "platform": "linux",
        "git": {"sha": "1a2b3c4", "branch": "main", "dirty": False},
    }


def killed_and_resumed(stage: Stage) -> None:
    """Two attempts: killed inside a tool, then given up with an error."""
    first = stage.enter("7f3c9a", 48109, session=SESSION, **hello())
    first.send(0.12, "agent.start", "triage", span="1")
    first.send(
        0.02,
        "llm.prompt",
        "triage",
        span="2",
        parent="1",
        payload={
            "messages": 2,
            "tokens_in": 1204,
            "model": "claude-haiku-4-5",
            "text": "[system]\nDecide: work or answer.\n\n[user]\nExplore the house prices.",
        },
    )
    first.send(
        2.37,
        "llm.response",
        "triage",
        span="2",
        payload={
            "stop_reason": "end_turn",
            "tokens_out": 386,
            "cost_usd": 0.0005,
            "text": '{\n  "decision": "work"\n}',
        },
    )
    first.send(0.03, "agent.end", "triage", span="1", status="ok", payload={"cost_usd": 0.0005})
    first.send(0.01, "agent.start", "planner", span="3")
    first.send(
        0.09,
        "llm.prompt",
        "planner",
        span="4",
        parent="3",
        payload={"messages": 4, "tokens_in": 69340, "model": "claude-sonnet-5", "text": PLANNER_PROMPT},
    )
    first.send(
        8.41,
        "llm.response",
        "planner",
        span="4",
        payload={
            "stop_reason": "tool_use",
            "tokens_out": 912,
            "cost_usd": 0.0171,
            "text": "I will look at the data first.",
            "requested_tools": [
                {"id": "toolu_01", "name": "web_search"},
                {"id": "toolu_02", "name": "read_file"},
            ],
        },
    )
    first.send(
        0.02,
        "tool.call",
        "web_search",
        span="5",
        parent="3",
        payload={"args": {"query": "ames housing columns"}},
    )
    first.send(
        0.01,
        "tool.call",
        "read_file",
        span="6",
        parent="3",
        payload={"args": {"path": "/root/.kaggle/kaggle.json"}},
    )
    first.send(
        0.04,
        "tool.error",
        "read_file",
        span="6",
        status="error",
        payload={
            "error_type": "PermissionError",
            "error": "[Errno 13] Permission denied: '/root/.kaggle/kaggle.json'",
        },
    )
    first.send(
        1.22,
        "tool.result",
        "web_search",
        span="5",
        status="ok",
        payload={"hits": 3, "text": "1. Ames data dictionary\n2. Kaggle: house prices\n3. De Cock (2011)"},
    )
    first.send(
        0.05,
        "log",
        "eda",
        payload={
            "level": "warning",
            "message": "no credentials, falling back to the public mirror",
            "mirror": "a",
        },
    )
    first.send(
        0.31,
        "tool.call",
        "run_python",
        span="7",
        parent="3",
        payload={"args": {"code": "df = load()\ndf.describe()"}},
    )
    stage.clock.tick(30.0)
    stage.die(first, "process exited: killed by SIGKILL")
    stage.clock.tick(467.8)
    second = stage.enter("91bd02", 48211, session=SESSION, **hello())
    second.send(0.08, "agent.start", "executor", span="1")
    second.send(
        0.04,
        "llm.prompt",
        "executor",
        span="2",
        parent="1",
        payload={"messages": 7, "tokens_in": 2449, "model": "claude-sonnet-5"},
    )
    second.send(
        3.02,
        "llm.response",
        "executor",
        span="2",
        payload={"stop_reason": "tool_use", "tokens_out": 1184, "cost_usd": 0.0054},
    )
    for span in ("3", "4"):
        second.send(
            0.02,
            "tool.call",
            "run_python",
            span=span,
            parent="1",
            payload={"args": {"code": "df = load(nrows=1000)"}},
        )
        second.send(
            10.0,
            "tool.error",
            "run_python",
            span=span,
            status="error",
            payload={"error_type": "TimeoutError", "error": "exceeded 10s"},
        )
    second.send(
        0.11,
        "error",
        "executor",
        parent="1",
        status="error",
        payload={
            "error_type": "RuntimeError",
            "error": "executor gave up after 2 attempts",
            "text": TRACEBACK,
        },
    )
    second.send(0.01, "agent.end", "executor", span="1", status="error")
    second.send(0.02, "run.end", status="failed")


def two_processes(stage: Stage) -> None:
    """A parent and the child it started; the child is killed, the run goes on and ends well."""
    stage.clock.tick(60)
    parent = stage.enter(
        "c41f00", 48400, framework="plain", model="claude-haiku-4-5", task="summarise the papers"
    )
    parent.send(0.1, "agent.start", "orchestrator", span="1")
    parent.send(0.1, "tool.call", "spawn_worker", span="2", parent="1", payload={"args": {"n": 1}})
    child = stage.enter("c41f00.1", 48402, run_id=parent.actor.run_id)
    child.send(0.2, "agent.start", "worker", span="1", parent="c41f00/2")
    child.send(
        0.1,
        "llm.prompt",
        "worker",
        span="2",
        parent="1",
        payload={"messages": 1, "tokens_in": 8120, "model": "claude-haiku-4-5"},
    )
    child.send(
        0.9,
        "llm.error",
        "worker",
        span="2",
        status="error",
        payload={"error_type": "overloaded_error", "error": "Overloaded"},
    )
    stage.clock.tick(0.4)
    stage.die(child, "process exited: killed by SIGTERM")
    parent.send(
        0.1,
        "tool.result",
        "spawn_worker",
        span="2",
        status="ok",
        payload={"text": "worker died, going on alone"},
    )
    for page in range(1, 5):
        parent.send(
            0.05, "tool.call", "read_page", span=f"p{page}", parent="1", payload={"args": {"page": page}}
        )
        parent.send(
            0.3, "tool.result", "read_page", span=f"p{page}", status="ok", payload={"text": f"page {page}"}
        )
    parent.send(0.1, "agent.end", "orchestrator", span="1", status="ok")
    parent.send(0.1, "run.end", status="ok")


def measured(stage: Stage) -> None:
    """What an exporter in the second attempt of the newest run has measured: a counter and a histogram."""
    resource = Resource({"service.name": "house-prices", "service.instance.id": "91bd02"})
    scope = Scope("eda.meter", "1.0")
    calls = Metric("agent.tool.calls", "tool calls made", "{call}", "sum", "delta", True, {})
    seconds = Metric("gen_ai.client.operation.duration", "", "s", "histogram", "cumulative", None, {})
    at = round(stage.clock.now() * 1e9)
    values: list[tuple[Metric, Json]] = [
        (calls, {"value": 2}),
        (
            seconds,
            {
                "count": 1,
                "sum": 3.02,
                "min": 3.02,
                "max": 3.02,
                "bounds": [1.0, 10.0],
                "bucket_counts": [0, 1, 0],
            },
        ),
    ]
    writer = MetricsWriter(stage.runs)
    (actor,) = [a for a in stage.runs.actors() if a.state.session_id == SESSION]
    for i, (metric, found) in enumerate(values):
        item = MetricItem(i, resource, scope, metric, at - 30_000_000_000, at, {}, found, [], 0)
        mapped = MappedMetric(i, resource, item, SESSION)
        writer.add(Point(1_788_077_000_000, "91bd02", stage.clock.now(), mapped), actor.run_id)
    assert writer.commit()


def one_line(stage: Stage) -> None:
    """A shell script that printed one line into the socket."""
    stage.clock.tick(60)
    script = stage.enter(
        "conn-48500-1",
        48500,
        task="socat",
        argv=["socat", "-", "UNIX-CONNECT:agentrund.sock"],
        cwd="/srv/build",
    )
    stage.clock.tick(0.01)
    script.actor.feed(script.source, Event("log", payload={"level": "info", "message": "built in 41 s"}))
    script.actor.feed(script.source, Event("run.end"))
    script.actor.commit()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    if target.exists():
        shutil.rmtree(target)
    asyncio.run(make(target))
