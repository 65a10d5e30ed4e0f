"""Run folders read with nothing of the collector's own: what they say in the words of a capture's manifest."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ARRIVALS = ("run.start", "run.resume", "source.join")
CALL_ENDS = ("llm.response", "llm.error")
KILLED = "process exited: killed by SIGKILL"
BANNER = re.compile(
    r"^---- attempt \d+ ended at \d\d:\d\d:\d\d without run\.end \(process exited: killed by SIGKILL\) ----\n"
    r"(?: {5}open: .*\n)*\Z",
    re.MULTILINE,
)
"""The last that a transcript says of a killed program."""

OF_REQUESTS = frozenset({"spans", "log_records", "traces", "duplicate_requests"})
"""What a manifest counts in the requests, not in the runs."""
IN_NO_ORDER = frozenset({"agents", "models"})
UNKNOWN = "unknown to the server"
"""A manifest's note on an open call that nothing in the requests tells of."""


@dataclass
class RunFolder:
    """One run as it stands on disk."""

    records: list[dict[str, Any]]
    meta: dict[str, Any]
    transcript: str

    @classmethod
    def read(cls, folder: Path) -> RunFolder:
        """Read a folder."""
        lines = (folder / "trace.jsonl").read_text().splitlines()
        meta = json.loads((folder / "meta.json").read_text())
        return cls([json.loads(line) for line in lines], meta, (folder / "agent.logs").read_text())

    @property
    def pids(self) -> set[int | None]:
        """The processes that took part."""
        return {r["payload"].get("pid") for r in self.of(*ARRIVALS)}

    @property
    def status(self) -> str:
        """How its last attempt ended."""
        return self.meta["attempts"][-1]["outcome"]

    @property
    def left_open(self) -> list[dict[str, Any]]:
        """The steps that were open when a process ended."""
        return [step for r in self.of("source.exit") for step in r["payload"]["open"]]

    @property
    def was_cut_off(self) -> bool:
        """Whether it ends with the banner of a kill, as a record and in the transcript."""
        last = self.records[-1]
        return (
            last["type"] == "source.exit"
            and last["payload"]["cause"] == KILLED
            and BANNER.search(self.transcript) is not None
        )

    def of(self, *types: str) -> list[dict[str, Any]]:
        """The records of some types."""
        return [r for r in self.records if r["type"] in types]

    def tokens_in(self) -> int:
        """Of a call that says them at its beginning and at its end, the end counts."""
        openers = {r["seq"]: r["payload"] for r in self.of("llm.prompt")}
        ends = [(r["payload"], openers.get(r["parent_seq"], {})) for r in self.of(*CALL_ENDS)]
        return sum(end.get("tokens_in", begin.get("tokens_in", 0)) for end, begin in ends)

    def subagents(self) -> int:
        """Agents within agents: by seq or, where the outer one was written after the inner one, by span."""
        agents = self.of("agent.start")
        outer = {r["seq"] for r in agents} | {r["src"]["span"] for r in agents}
        return sum(r["parent_seq"] in outer or r["src"].get("parent") in outer for r in agents)


def truth(runs: list[RunFolder]) -> dict[str, Any]:
    """What ``runs`` say, under the keys of a manifest's ``expect``."""
    records = sorted((r for run in runs for r in run.records), key=lambda r: (r["ts"], r["seq"]))
    left_open = [step for run in runs for step in run.left_open]

    def of(*types: str) -> list[dict[str, Any]]:
        return [r for r in records if r["type"] in types]

    ends = [r["payload"] for r in of(*CALL_ENDS)]
    calls = [r["payload"] for r in of("llm.prompt", *CALL_ENDS)]
    return {
        "runs": len(runs),
        "processes": len({pid for run in runs for pid in run.pids}),
        "run_status": " ".join(sorted({run.status for run in runs})),
        "ended_without_run_end": bool(runs) and all(run.was_cut_off for run in runs),
        "in_flight": [s["name"] for s in left_open if s.get("type") == "tool.call"],
        "missing_parents": sum("missing_parent" in s for s in left_open),
        "agents": [r["name"] for r in of("agent.start")],
        "subagents": sum(run.subagents() for run in runs),
        "llm_calls": len(of("llm.prompt")),
        "llm_errors": len(of("llm.error")),
        "models": sorted({call["model"] for call in calls if call.get("model")}),
        "tokens_in": sum(run.tokens_in() for run in runs),
        "tokens_out": sum(end.get("tokens_out", 0) for end in ends),
        "cost_usd": round(sum(end.get("cost_usd", 0) for end in ends), 9),
        "tool_calls": [r["name"] for r in of("tool.call")],
        "tool_calls_in_messages": sum(len(end.get("requested_tools", ())) for end in ends),
        "tool_errors": len(of("tool.error")),
        "embeddings": [r["name"] for r in of("log")].count("embeddings"),
        "errors": sum("error_type" in r["payload"] for r in records),
    }


def differences(expect: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Where ``found`` is not what a manifest expects; an expectation that nobody reads is one too."""
    wanted = {key: value for key, value in expect.items() if key not in OF_REQUESTS}
    wanted.setdefault("ended_without_run_end", False)
    wanted["in_flight"] = [text.split()[0] for text in expect.get("in_flight", []) if UNKNOWN not in text]
    return [
        f"{key}: expected {value}, found {found.get(key)}"
        for key, value in wanted.items()
        if _plain(key, value) != _plain(key, found.get(key))
    ]


def _plain(key: str, value: Any) -> Any:
    return sorted(value, key=str) if key in IN_NO_ORDER and value is not None else value
