"""Senders that offer more than can be carried: they send on a clock, whatever has been answered."""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections import Counter

import grpc
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from support import otlp_build
from support.daemon import Daemon
from support.otlp_send import SERVICES

EXPORT = f"/opentelemetry.proto.collector.{SERVICES['logs']}/Export"
RETRY_KEY = "google.rpc.retryinfo-bin"
TEXT = "x" * 200
BATCH = 20
"""Events sent, and records of a request."""
UNDER_WAY = 128
"""Requests of one connection without an answer: what the collector lets it have."""


class StreamSender:
    """Numbered events over the socket, ``rate`` a second as far as the socket takes them."""

    def __init__(self, daemon: Daemon, name: str, rate: float) -> None:
        self.name, self.rate, self.sent, self.acked = name, rate, 0, 0
        self.errors: Counter[str] = Counter()
        self._unsent = b""
        self._answers = b""
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.connect(str(daemon.socket))
        hello = {"op": "hello", "v": 1, "source": name, "run_id": None, "session_id": name}
        self._sock.sendall(json.dumps(hello).encode() + b"\n")
        self._sock.setblocking(False)

    def offer(self, until: float) -> None:
        """Send on the clock until ``until``, then only what has been begun, until all is acknowledged."""
        with self._sock, selectors.DefaultSelector() as selector:
            selector.register(self._sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
            began = time.monotonic()
            while (now := time.monotonic()) < until or self._unsent or self.acked < self.sent:
                due = now < until and self.sent < (now - began) * self.rate
                if due and not self._unsent:
                    self._make()
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
                selector.modify(self._sock, wanted)
                for _, ready in selector.select(0.01):
                    self._turn(ready)

    def _make(self) -> None:
        numbers = range(self.sent + 1, self.sent + BATCH + 1)
        self._unsent = b"".join(
            b'{"n":%d,"type":"log","payload":{"i":%d,"text":"%s"}}\n' % (n, n, TEXT.encode()) for n in numbers
        )
        self.sent += BATCH

    def _turn(self, ready: int) -> None:
        if ready & selectors.EVENT_WRITE:
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        if ready & selectors.EVENT_READ:
            data = self._sock.recv(1 << 16)
            if not data:
                raise ConnectionError("the collector has hung up")
            *lines, self._answers = (self._answers + data).split(b"\n")
            for line in map(json.loads, lines):
                if line["op"] == "ack":
                    self.acked = line["n"]
                elif line["op"] == "error":
                    self.errors[line["code"]] += 1


class OtlpSender:
    """Requests of log records over a connection of its own, ``rate`` a second as far as it lets them."""

    def __init__(self, daemon: Daemon, name: str, rate: float) -> None:
        self.rate, self.name, self.sent = rate, name, 0
        self.acked: set[int] = set()
        self.answers: Counter[str] = Counter()
        self.not_retryable = 0
        self.refused = 0
        self._channel = grpc.insecure_channel(daemon.otlp, options=[("grpc.use_local_subchannel_pool", 1)])
        self._call = self._channel.unary_unary(EXPORT)
        self._under_way = threading.Semaphore(UNDER_WAY)
        self._lock = threading.Lock()

    def offer(self, until: float) -> None:
        """Send on the clock until ``until``, then wait for the answers."""
        began = time.monotonic()
        while (now := time.monotonic()) < until:
            if self.sent >= (now - began) * self.rate:
                time.sleep(0.002)
            elif self._under_way.acquire(timeout=0.1):
                self._send()
        for _ in range(UNDER_WAY):
            assert self._under_way.acquire(timeout=120)
        self._channel.close()

    def _send(self) -> None:
        number, self.sent = self.sent, self.sent + 1
        values = {"session.id": self.name, "text": TEXT}
        records = [
            LogRecord(event_name="said", attributes=otlp_build.key_values({**values, "i": number, "j": j}))
            for j in range(BATCH)
        ]
        body = otlp_build.logs(*records, resource={"service.instance.id": self.name})
        self._call.future(body, timeout=120).add_done_callback(lambda call: self._answered(number, call))

    def _answered(self, number: int, call: grpc.Future) -> None:
        with self._lock:
            self.answers[call.code().name] += 1
            if call.code() is grpc.StatusCode.OK:
                self.acked.add(number)
            elif call.code() is not grpc.StatusCode.UNAVAILABLE:
                self.not_retryable += 1
            else:
                # gRPC itself refuses a stream beyond those it lets a connection have, and says no more.
                self.refused += RETRY_KEY in dict(call.trailing_metadata() or ())
        self._under_way.release()
