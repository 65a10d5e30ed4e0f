"""The senders: programs that go on whatever happens to the collector, each with a private ledger.

``python -m crash.sender '<json of Orders>'``. A ``stream`` sender speaks the protocol itself and keeps what is
not acknowledged; ``client`` uses the thin client; ``otlp-logs`` and ``otlp-spans`` send raw requests
(``otlp_sender``).
"""

from __future__ import annotations

import json
import random
import select
import socket
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

from crash.ledger import SUFFIX, Ledger, body

RETRY_S = 0.05
WINDOW = 256
"""Events a stream sender has under way at most."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What one sender does. ``stop`` is a file: once it is there the sender finishes and ends its run."""

    kind: str
    producer: str
    folder: str
    stop: str
    socket: str
    otlp: str | None
    """Where OTLP goes: ``host:port`` for gRPC, ``http://host:port`` for JSON over HTTP."""
    session: str | None
    rate: float
    """Events a second; 0: as fast as it goes."""
    most: int = 0
    """Events in all; 0: until ``stop``."""
    largest: int = 1 << 20
    hasty: bool = False
    """Hangs up before answers come, forgets what `welcome` said, and sends again."""

    def text(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


class Source:
    """The events of one sender, one after another, at its rate; writes each into the ledger first."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.ledger = Ledger(Path(orders.folder) / f"{orders.producer}{SUFFIX}")
        self.n = 0
        self._sizes = random.Random(orders.producer)
        self._stop = Path(orders.stop)
        self._next = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether there is nothing more to make."""
        return bool(self.orders.most and self.n >= self.orders.most) or self._stop.exists()

    def pace(self) -> float:
        """Seconds until the next event is due."""
        return 0.0 if not self.orders.rate else max(0.0, self._next - time.monotonic())

    def make(self) -> dict[str, object]:
        """The next event's payload."""
        if self.orders.rate:
            self._next = max(self._next + 1 / self.orders.rate, time.monotonic() - 1)
        self.n += 1
        text = body(self.orders.producer, self.n, self._size())
        self.ledger.sent(self.n, text)
        return {"p": self.orders.producer, "i": self.n, "body": text}

    def _size(self) -> int:
        """Mostly small, now and then a long history: 200 B to 1 MB."""
        chance = self._sizes.random()
        low, high = (200, 2000) if chance < 0.9 else (2000, 1 << 16) if chance < 0.985 else (1 << 16, 1 << 20)
        return self._sizes.randrange(low, max(low + 1, min(high, self.orders.largest)))


# -- the stream protocol, spoken by hand ---------------------------------------------------------------


class StreamSender:
    """Resends from ``acked`` + 1 after each reconnect; forgets an event only when it is acknowledged."""

    def __init__(self, orders: Orders) -> None:
        self.source = Source(orders)
        self.orders = orders
        self._kept: deque[tuple[int, bytes]] = deque()
        self._end: int | None = None
        self._sock: socket.socket | None = None
        self._buffer = b""
        self._out = bytearray()
        self._welcome = False
        self._hangs_up = random.Random(f"{orders.producer} hangs up")

    def run(self) -> None:
        """Until the run's end is acknowledged."""
        while not self._finished():
            if self._sock is None and not self._connect():
                time.sleep(RETRY_S)
                continue
            try:
                self._turn()
            except OSError:
                self._drop()
        self.source.ledger.ended()
        self._drop()

    def _finished(self) -> bool:
        return self._end is not None and not self._kept

    def _connect(self) -> bool:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(self.orders.socket)
        except OSError:
            sock.close()
            return False
        sock.setblocking(False)
        hello = {
            "op": "hello",
            "v": 1,
            "source": self.orders.producer,
            "session_id": self.orders.session,
        }
        self._sock, self._buffer, self._welcome = sock, b"", False
        self._out = bytearray(json.dumps(hello).encode() + b"\n")
        return True

    def _drop(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _turn(self) -> None:
        """Make what is due, send what goes, read what came."""
        if self._welcome:
            self._fill()
        writable = [self._sock] if self._out else []
        wait = 0.05 if self.source.over else min(0.05, self.source.pace())
        readable, can_write, _ = select.select([self._sock], writable, [], wait)
        if can_write:
            del self._out[: self._sock.send(self._out)]
        if readable:
            if self.orders.hasty and self._welcome and self._hangs_up.random() < 0.2:
                self.source.ledger.repeated()
                raise ConnectionAbortedError
            data = self._sock.recv(1 << 16)
            if not data:
                raise ConnectionResetError
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._frame(json.loads(line))

    def _fill(self) -> None:
        while len(self._kept) < WINDOW and len(self._out) < 1 << 20 and self._end is None:
            if self.source.over:
                self._end = self.source.n + 1
                self._keep(self._end, {"n": self._end, "type": "run.end", "status": "ok"})
            elif self.source.pace() > 0:
                return
            else:
                payload = self.source.make()
                self._keep(self.source.n, {"n": self.source.n, "type": "log", "payload": payload})

    def _keep(self, n: int, frame: dict[str, object]) -> None:
        line = json.dumps(frame, ensure_ascii=False).encode() + b"\n"
        self._kept.append((n, line))
        self._out += line

    def _frame(self, frame: dict[str, object]) -> None:
        if frame["op"] == "welcome":
            self._welcome = True
            if not self.orders.hasty:
                self._settled(int(str(frame["acked"])))
            for _, line in self._kept:
                self._out += line
        elif frame["op"] == "ack":
            self._settled(int(str(frame["n"])))
        elif frame["op"] == "error" and frame["code"] not in ("storage", "overloaded"):
            self.source.ledger.refused(f"{frame['code']}: {frame['message']}")

    def _settled(self, n: int) -> None:
        while self._kept and self._kept[0][0] <= n:
            self._kept.popleft()
        self.source.ledger.acked(min(n, self.source.n))


# -- the thin client ------------------------------------------------------------------------------------


def run_client(orders: Orders) -> None:
    """The thin client at work: what ``flush`` confirmed is acknowledged, what it had at its end as well."""
    import agentrund_client as agentrund

    source = Source(orders)
    with agentrund.run(orders.session), agentrund.agent(orders.producer):
        while not source.over:
            time.sleep(source.pace())
            agentrund.log("work", **source.make())
            if source.n % 50 == 0 and agentrund.flush(0.2):
                source.ledger.acked(source.n)
        if any(agentrund.flush(1.0) for _ in range(60)):
            source.ledger.ended()


KINDS = ("stream", "client", "otlp-logs", "otlp-spans")


def run(orders: Orders) -> None:
    """Play one sender to its end."""
    if orders.kind == "stream":
        StreamSender(orders).run()
    elif orders.kind == "client":
        run_client(orders)
    else:
        from crash.otlp_sender import run_otlp

        run_otlp(orders)


if __name__ == "__main__":
    run(Orders(**json.loads(sys.argv[1])))
