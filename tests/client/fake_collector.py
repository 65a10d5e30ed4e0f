"""A small collector for the client's tests: a real Unix socket, the stream protocol, a journal that survives kill -9.

In the tests' process it is a `FakeCollector` whose conduct can be changed while it runs. As a program
(`python fake_collector.py SOCKET JOURNAL`) it can be stopped and killed by signals.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import sys
import threading
from typing import Any

WATCHDOG = 30.0


class Connection:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.source: str | None = None
        self.refused = False

    def send(self, frame: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self.sock.sendall(json.dumps(frame).encode() + b"\n")


class FakeCollector:
    """Knobs: `acks`, `welcomes`, `reading`, `max_line`, `heartbeat_s`, `known_runs`, `refuse`."""

    def __init__(self, path: str, journal: str | None = None) -> None:
        self.path = path
        self.acks = True
        self.welcomes = True
        self.max_line = 64 << 20
        self.heartbeat_s: float | None = None
        self.known_runs: set[str] = set()
        self.refuse: str | None = None
        self.run_dir: str | None = None
        self.reading = threading.Event()
        self.reading.set()
        self.changed = threading.Condition()
        self.raw: list[bytes] = []
        self.frames: list[dict[str, Any]] = []
        self.stored: dict[str, list[dict[str, Any]]] = {}
        self.lost: dict[str, list[tuple[int, int]]] = {}
        self.jumps: list[tuple[str, int, int]] = []
        self.duplicates = 0
        self.high: dict[str, int] = {}
        self.runs: dict[str, str] = {}
        self._sessions: dict[str, str] = {}
        self._connections: list[Connection] = []
        self._listener: socket.socket | None = None
        self._journal = journal
        if journal and pathlib.Path(journal).exists():
            self._recover(pathlib.Path(journal).read_bytes())

    # Life

    def start(self) -> FakeCollector:
        pathlib.Path(self.path).unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(128)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Go away at once, without a word; what was stored stays known."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        pathlib.Path(self.path).unlink(missing_ok=True)
        self.cut()
        self.reading.set()

    def cut(self) -> None:
        """Close every connection, keep listening."""
        with self.changed:
            connections, self._connections = self._connections, []
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    # What tests ask

    @property
    def hellos(self) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame.get("op") == "hello"]

    @property
    def events(self) -> list[dict[str, Any]]:
        """All stored events, by source in order of hello."""
        return [event for events in self.stored.values() for event in events]

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    def wait(self, predicate, timeout: float = WATCHDOG):
        with self.changed:
            done = self.changed.wait_for(predicate, timeout)
        assert done, f"not within {timeout} s; got {self.frames[-5:]}"
        return done

    def send_all(self, frame: dict[str, Any]) -> None:
        for connection in list(self._connections):
            connection.send(frame)

    # Serving

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            connection = Connection(sock)
            with self.changed:
                self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        partial = b""
        while True:
            self.reading.wait()
            try:
                data = connection.sock.recv(65536)
            except OSError:
                data = b""
            if not data:
                connection.sock.close()
                return
            *lines, partial = (partial + data).split(b"\n")
            with self.changed:
                for line in lines:
                    if line:
                        self.raw.append(line)
                        self._handle(connection, json.loads(line))
                if self.acks and connection.source is not None and any(b'"n":' in line for line in lines):
                    connection.send({"op": "ack", "n": self.high[connection.source], "seq": 0})
                self.changed.notify_all()

    def _handle(self, connection: Connection, frame: dict[str, Any]) -> None:
        self.frames.append(frame)
        op = frame.get("op", "event")
        if op == "hello":
            self._hello(connection, frame)
        elif connection.source is None:
            connection.send({"op": "error", "code": "bad_frame", "n": frame.get("n"), "message": "no hello"})
        elif op == "event":
            self._event(connection.source, frame)
        elif op == "lost":
            if frame["to"] > self.high[connection.source]:
                self.lost.setdefault(connection.source, []).append((frame["from"], frame["to"]))
            self._raise_to(connection.source, frame["from"], frame["to"])
        elif op == "flush" and self.acks:
            connection.send({"op": "flushed", "id": frame["id"], "n": self.high[connection.source]})

    def _hello(self, connection: Connection, frame: dict[str, Any]) -> None:
        source, run_id = frame["source"], frame.get("run_id")
        if self.refuse:
            connection.send({"op": "error", "code": self.refuse, "message": "refused by the test"})
            return
        known = run_id in self.known_runs or run_id in self.runs.values()
        if source not in self.runs and run_id is not None and not known:
            connection.send({"op": "error", "code": "unknown_run", "message": f"no run {run_id}"})
            return
        connection.source = source
        session = frame.get("session_id")
        run = self.runs.get(source) or run_id or (self._sessions.get(session) if session else None)
        role = "member" if run is not None and source not in self.runs else "owner"
        run = run or f"20260830_142233_{len(self.runs):04x}"
        self.runs[source] = run
        if session:
            self._sessions[session] = run
        self.high.setdefault(source, 0)
        self.stored.setdefault(source, [])
        if self.welcomes:
            connection.send(
                {
                    "op": "welcome", "v": 1, "run_id": run, "dir": self.run_dir or f"/nowhere/{run}", "role": role,
                    "attempt": 1, "resume_seq": 0, "acked": self.high[source], "heartbeat_s": self.heartbeat_s,
                    "max_line_bytes": self.max_line,
                }
            )  # fmt: skip

    def _event(self, source: str, frame: dict[str, Any]) -> None:
        n = frame["n"]
        if n <= self.high[source]:
            self.duplicates += 1
            return
        self._raise_to(source, n, n)
        self.stored[source].append(frame)
        if self._journal:
            fd = os.open(self._journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(fd, json.dumps({"source": source, "run": self.runs[source], **frame}).encode() + b"\n")
            os.close(fd)

    def _raise_to(self, source: str, first: int, last: int) -> None:
        if first > self.high[source] + 1:
            self.jumps.append((source, self.high[source] + 1, first - 1))
        self.high[source] = max(self.high[source], last)

    def _recover(self, journal: bytes) -> None:
        for line in journal.split(b"\n")[:-1]:
            frame = json.loads(line)
            source = frame.pop("source")
            self.runs[source] = frame.pop("run")
            self.stored.setdefault(source, []).append(frame)
            self.high[source] = frame["n"]


if __name__ == "__main__":
    FakeCollector(sys.argv[1], sys.argv[2]).start()
    print("ready", flush=True)  # noqa: T201
    threading.Event().wait()
