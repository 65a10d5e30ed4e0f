"""What the collector says of itself: ``agentrund status`` and the socket's ``status`` frame."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agentrund import __version__
from agentrund.model.event import Json
from agentrund.receivers.decode.jsonl import SlowLines

if TYPE_CHECKING:
    from agentrund.service.collector import Collector


def status(collector: Collector) -> Json:
    """Addresses, open runs, live sources, what waits, free space, the last error."""
    runs = collector.runs
    actors = runs.open_actors()
    disk = os.fstatvfs(collector.root.folder.fd)
    return {
        "version": __version__,
        "pid": os.getpid(),
        "started_at": collector.started_at,
        "root": collector.root.folder.path,
        "socket": str(collector.listener.path),
        "otlp_grpc": collector.otlp.grpc_address,
        "http": collector.otlp.http_address,
        "connections": 0 if collector.door is None else len(collector.door.connections),
        "hung_up": 0 if collector.door is None else collector.door.hung_up,
        "sources": sum(len(actor.state.live_sources()) for actor in actors),
        "open_runs": [
            {
                "run_id": actor.run_id,
                "session_id": actor.state.session_id,
                "attempt": len(actor.state.attempts),
                "last_seq": actor.state.last_seq,
                "sources": len(actor.state.live_sources()),
                "quiet_s": round(actor.quiet_s, 1),
            }
            for actor in actors
        ],
        "quiet_after_s": collector.settings.heartbeat_timeout,
        "otlp": collector.otlp.status(),
        "wire": collector.otlp.service.wire.as_json(),
        "forwarding": collector.otlp.forwarding,
        "memory": collector.memory.status(),
        "finalising": len(runs.finalising),
        "waiting_for_storage": runs.blocked,
        "storage_trouble": runs.trouble.status(),
        "slow_lines": SlowLines.count,
        "disk_free_bytes": disk.f_bavail * disk.f_frsize,
        "last_error": runs.trouble.last_error,
    }
