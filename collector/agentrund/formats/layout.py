"""Names of everything in a root. Paths are strings relative to the root; nobody else spells them."""

from __future__ import annotations

from typing import Final

RUNS: Final = "runs"
SESSIONS: Final = "sessions"
LATEST: Final = "latest"
INDEX: Final = "index.jsonl"
NAVIGATE: Final = "NAVIGATE.md"

STATE: Final = ".agentrund"
LOCK: Final = "lock"
INTAKE: Final = "intake"
FORWARDED: Final = "forwarded"
"""The number of the last request that was passed on, in decimal digits."""
QUARANTINE: Final = "quarantine"
STRAY_METRICS: Final = "metrics"
WIRE: Final = "wire.json"
"""What has come over OTLP, by client."""
"""Below the state folder."""

TRACE: Final = "trace.jsonl"
LOGS: Final = "agent.logs"
OUTLINE: Final = "outline.md"
ANALYTICS: Final = "analytics.json"
META: Final = "meta.json"
BLOBS: Final = "blobs"
ARTIFACTS: Final = "artifacts"
METRICS: Final = "metrics.jsonl"


def run_dir(run_id: str) -> str:
    """The folder of a run, relative to the root."""
    return f"{RUNS}/{run_id}"
