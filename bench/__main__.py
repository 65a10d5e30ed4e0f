"""``make bench``: a few minutes, a table, and ``bench/last.json``. Best on a machine that is idle."""

from __future__ import annotations

import json
import os
from pathlib import Path

from bench import bad_peers, banner_latency, client_emit, fairness, startup, stream, sync


def main() -> None:
    """Measure, print, write."""
    found = {
        "machine": {"cores": os.cpu_count(), "load": os.getloadavg()},
        "stream 300 B": stream.measure(300),
        "stream 1 KB": stream.measure(1024),
        "sync": sync.measure(),
        "client emit 1 KB": client_emit.measure(),
        "client import": client_emit.import_ms(),
        "start, old runs": startup.measure(),
        "among 500 bad peers": bad_peers.measure(),
        "beside OTLP": fairness.measure(),
        "banner after SIGKILL": banner_latency.measure(),
    }
    for name, facts in found.items():
        print(f"{name:<22}" + "  ".join(f"{key} {value}" for key, value in facts.items()))
    Path(__file__).with_name("last.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
