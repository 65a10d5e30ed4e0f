"""agentrund's thin client: tells the collector what an agent does, while it does it.

    import agentrund_client as agentrund

    with agentrund.run("session-7", model="claude-sonnet-5"), agentrund.agent("planner"):
        with agentrund.llm("claude-sonnet-5", messages=messages) as call:
            call.result(answer, tokens_out=386, stop_reason="end_turn")
        with agentrund.tool("search", query="x") as step:
            step.output = search("x")

Nothing here raises into the agent, blocks it or outlives it. Without a collector events go into a spool file.
"""

# Every module sets TYPE_CHECKING itself, as type checkers allow: typing would be a sixth of the import cost.
from __future__ import annotations

from agentrund_client._api import (
    agent,
    artifact,
    artifact_dir,
    child_env,
    current,
    error,
    event,
    flush,
    llm,
    log,
    run,
    state,
    tool,
)
from agentrund_client._guard import faults
from agentrund_client._run import Run
from agentrund_client._steps import Agent, Llm, Step, Tool
from agentrund_client._traced import traced

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Llm",
    "Run",
    "Step",
    "Tool",
    "agent",
    "artifact",
    "artifact_dir",
    "child_env",
    "current",
    "error",
    "event",
    "faults",
    "flush",
    "llm",
    "log",
    "run",
    "state",
    "tool",
    "traced",
]
