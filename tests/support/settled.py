"""Waiting for the point at which a collector has nothing more to do, as it says itself."""

from __future__ import annotations

import json
import time
from typing import Any

from support.daemon import Daemon
from support.raw_client import RawClient


class Settled:
    """The point at which a collector has nothing more to do: journal, derivations, open runs."""

    def __init__(self, daemon: Daemon, patience_s: float) -> None:
        self._daemon = daemon
        self._deadline = time.monotonic() + max(1.0, patience_s)

    def wait(self) -> str | None:
        """None once it is reached; what is still open when patience ends."""
        said: object = "nothing"
        while time.monotonic() < self._deadline:
            try:
                said = self._ask()
            except (OSError, EOFError) as error:
                if self._daemon.process.poll() is not None:
                    return f"is gone: {error}"
            else:
                if not (said["otlp"]["waiting"] or said["finalising"] or said["open_runs"]):
                    return None
            time.sleep(0.05)
        return f"is not done: {json.dumps(said)[:600]}"

    def _ask(self) -> dict[str, Any]:
        with RawClient(self._daemon.socket) as client:
            client.send({"op": "status"})
            return client.expect("status")
