"""Performs the OTLP sequencer's commands on run machines in memory, and says what came of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from agentrund.model import kinds
from agentrund.model.event import Record
from agentrund.model.run_state import RunState
from agentrund.sequencer.otlp_commands import (
    BY_PROCESS,
    Adopt,
    Command,
    Done,
    Feed,
    Finish,
    Join,
    Leave,
    Measure,
    OpenRun,
    Refuse,
    RunKey,
)
from agentrund.sequencer.run import RunMachine

CALL_ENDS = (kinds.LLM_RESPONSE, kinds.LLM_ERROR)


def local_iso(ts: float) -> str:
    return datetime.fromtimestamp(ts, tz=UTC).isoformat(timespec="milliseconds")


@dataclass
class Run:
    """One run's machine and everything it wrote."""

    machine: RunMachine
    records: list[Record] = field(default_factory=list)

    def types(self) -> list[str]:
        return [r.type for r in self.records]

    def of(self, *types: str) -> list[Record]:
        return [r for r in self.records if r.type in types]

    @property
    def status(self) -> str:
        return self.machine.state.attempts[-1].outcome

    def open_listed(self) -> list[dict[str, Any]]:
        return [step for r in self.of(kinds.SOURCE_EXIT) for step in r.payload["open"]]


@dataclass
class Executor:
    """``now`` is what the machines take for the time of arrival."""

    runs: dict[RunKey, Run] = field(default_factory=dict)
    finished: list[Run] = field(default_factory=list)
    sessions: dict[str, RunKey] = field(default_factory=dict)
    done: list[int] = field(default_factory=list)
    measured: list[Measure] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)

    def perform_parts(self, parts: Iterable[list[Command]], now: float) -> None:
        for commands in parts:
            self.perform(commands, now)

    def perform(self, commands: list[Command], now: float) -> None:
        self.commands += commands
        for command in commands:
            if isinstance(command, Done):
                self.done.append(command.rq)
            elif isinstance(command, Adopt):
                self.sessions[command.session_id] = command.key
            elif isinstance(command, Measure):
                self.measured.append(command)
            else:
                self._on_run(command, now)

    def _on_run(self, command: Command, now: float) -> None:
        if isinstance(command, OpenRun):
            self._open(command)
        run = self.runs[command.key]
        machine = run.machine
        if isinstance(command, (OpenRun, Join)):
            steps = machine.arrive(command.arrival, now)
        elif isinstance(command, Feed):
            steps = machine.feed(command.source, command.event, now)
        elif isinstance(command, Refuse):
            steps = machine.note(command.why, now, refused="otlp_request")
        elif isinstance(command, Leave):
            assert command.clean == (command.cause == "bye")
            ts = now if command.ts is None else command.ts
            steps = machine.leave(
                command.source, command.cause, ts, extra_open=command.open_extra, linger=True
            )
        else:
            assert isinstance(command, Finish)
            steps = machine.finish(command.status, command.cause, command.ts)
        run.records += [step.record for step in steps]

    def _open(self, command: OpenRun) -> None:
        known = self.runs.get(command.key)
        if known is not None and command.key.by == BY_PROCESS:
            self.finished.append(known)
            known = None
        if known is None:
            state = RunState(f"run_{len(self.runs) + len(self.finished)}")
            self.runs[command.key] = Run(RunMachine(state, local_iso))
        if command.arrival.session_id is not None:
            self.sessions[command.arrival.session_id] = command.key

    def all_runs(self) -> list[Run]:
        return [*self.finished, *self.runs.values()]


def truth(runs: list[Run]) -> dict[str, Any]:
    """What the manifests' ``expect`` says, read from the records of ``runs``."""
    records = [r for run in runs for r in run.records]

    def named(kind: str) -> list[str | None]:
        found = sorted((r for r in records if r.type == kind), key=lambda r: r.ts)
        return [r.name for r in found]

    models = {r.payload.get("model") for r in records if r.type in (kinds.LLM_PROMPT, *CALL_ENDS)}
    costs = [r.payload["cost_usd"] for r in records if r.type in CALL_ENDS and "cost_usd" in r.payload]
    statuses = {run.status for run in runs}
    out = {
        "runs": len(runs),
        "agents": named(kinds.AGENT_START),
        "llm_calls": len(named(kinds.LLM_PROMPT)),
        "models": sorted(m for m in models if m),
        "tokens_in": sum(_tokens(r, "tokens_in") for r in records),
        "tokens_out": sum(_tokens(r, "tokens_out") for r in records),
        "llm_errors": len(named(kinds.LLM_ERROR)),
        "tool_calls": named(kinds.TOOL_CALL),
        "tool_errors": len(named(kinds.TOOL_ERROR)),
        "embeddings": named(kinds.LOG).count("embeddings"),
        "missing_parents": sum("missing_parent" in s for run in runs for s in run.open_listed()),
        "run_status": statuses.pop() if len(statuses) == 1 else sorted(statuses),
        "errors": sum(1 for r in records if r.payload.get("error_type")),
    }
    if costs:
        out["cost_usd"] = round(sum(costs), 9)
    return out


def _tokens(record: Record, key: str) -> int:
    return record.payload.get(key, 0) if record.type in CALL_ENDS else 0
