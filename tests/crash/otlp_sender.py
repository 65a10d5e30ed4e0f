"""OTLP senders: raw requests over gRPC, or as JSON over HTTP, repeated byte for byte until they are answered."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import random
import time
from collections.abc import Iterator
from typing import Protocol

import grpc
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from agentrund.model.otlp import Signal
from crash.ledger import Ledger
from crash.sender import RETRY_S, Orders, Source
from support.otlp_build import any_value, key_values, logs, span, traces
from support.otlp_json import to_json
from support.otlp_send import SERVICES

PATIENCE_S = 10.0
"""What exporters wait for an answer."""
GRPC_RETRYABLE = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED")
HTTP_RETRYABLE = (429, 502, 503, 504)
"""Statuses after which a stock exporter sends again (measured for the Python one, cases M5)."""
SIGNALS = {"otlp-logs": Signal.LOGS, "otlp-spans": Signal.TRACES}
BATCH = 8


class NotAnsweredError(Exception):
    """No success. ``final``: nothing an exporter would send again after."""

    def __init__(self, why: str, *, final: bool) -> None:
        super().__init__(why)
        self.final = final


class Wire(Protocol):
    """A way to the collector."""

    def export(self, body: bytes, timeout: float) -> None:
        """Send one request. Raises NotAnsweredError."""

    def close(self) -> None:
        """Hang up; a channel that is left open goes on looking for its collector."""


class GrpcWire:
    """A channel of its own."""

    def __init__(self, address: str, signal: Signal) -> None:
        options = [
            ("grpc.max_send_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 200),
        ]
        self._channel = grpc.insecure_channel(address, options=options)
        self._export = self._channel.unary_unary(f"/opentelemetry.proto.collector.{SERVICES[signal]}/Export")

    def export(self, body: bytes, timeout: float) -> None:
        try:
            self._export(body, timeout=timeout)
        except grpc.RpcError as error:
            code = error.code().name
            raise NotAnsweredError(f"{code}: {error.details()}", final=code not in GRPC_RETRYABLE) from error

    def close(self) -> None:
        self._channel.close()


class HttpWire:
    """One connection at a time, kept while it can be."""

    def __init__(self, address: str, signal: Signal) -> None:
        self._host = address.removeprefix("http://")
        self._signal = signal
        self._connection: http.client.HTTPConnection | None = None
        self._json: tuple[bytes, bytes] = (b"", b"")

    def export(self, body: bytes, timeout: float) -> None:
        if self._json[0] != body:
            self._json = body, to_json(self._signal, body)
        connection = self._connection or http.client.HTTPConnection(self._host)
        self._connection = None
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        try:
            said = {"content-type": "application/json"}
            connection.request("POST", f"/v1/{self._signal}", self._json[1], said)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NotAnsweredError(str(error), final=False) from error
        self._connection = connection
        if response.status != http.HTTPStatus.OK:
            final = response.status not in HTTP_RETRYABLE
            raise NotAnsweredError(f"{response.status}: {answer[:200]!r}", final=final)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def run_otlp(orders: Orders) -> None:
    """Send what there is to send; what no exporter would repeat is written down."""
    source = Source(orders)
    signal = SIGNALS[orders.kind]
    chance = random.Random(f"{orders.producer} gives up")
    address = str(orders.otlp)
    with contextlib.closing(_wire(address, signal)) as wire:
        _send_all(orders, signal, wire, source, chance)
    source.ledger.ended()


def _wire(address: str, signal: Signal) -> Wire:
    return (HttpWire if address.startswith("http://") else GrpcWire)(address, signal)


def _send_all(orders: Orders, signal: Signal, wire: Wire, source: Source, chance: random.Random) -> None:
    for number in itertools.count(1):
        events = list(_batch(source))
        if not events:
            break
        request = (_logs if signal is Signal.LOGS else _spans)(orders, number, events)
        for _ in range(chance.randrange(4) if orders.hasty else 0):
            # A deadline that may come before the answer, after the request was stored.
            with contextlib.suppress(NotAnsweredError):
                wire.export(request, chance.uniform(0.001, 0.02))
            source.ledger.repeated()
        # As if the answers were lost on their way: a hasty one sends again what was stored.
        for again in range(2 if orders.hasty and chance.random() < 0.5 else 1):
            _until_answered(wire, request, source.ledger)
            if again:
                source.ledger.repeated()
        source.ledger.acked(source.n)


def _batch(source: Source) -> Iterator[dict[str, object]]:
    for _ in range(BATCH):
        if source.over:
            return
        time.sleep(source.pace())
        yield source.make()


def _until_answered(wire: Wire, request: bytes, ledger: Ledger) -> None:
    while True:
        try:
            wire.export(request, PATIENCE_S)
        except NotAnsweredError as error:
            if error.final:
                ledger.refused(str(error))
                return
            time.sleep(RETRY_S)
        else:
            return


def _logs(orders: Orders, _number: int, events: list[dict[str, object]]) -> bytes:
    records = [LogRecord(body=any_value("work"), attributes=key_values(event)) for event in events]
    return logs(*records, resource=_resource(orders))


def _spans(orders: Orders, number: int, events: list[dict[str, object]]) -> bytes:
    """One trace a request: an agent whose tools are the events."""
    now = time.time()
    trace = random.Random(f"{orders.producer}/{number}").randbytes(16)
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": orders.producer}
    spans = [span(1, name="invoke_agent", start=now, seconds=0.9, attributes=agent)]
    for place, event in enumerate(events):
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "work", **event}
        spans.append(
            span(
                place + 2, 1, name="execute_tool work", start=now + place / 10, seconds=0.05, attributes=tool
            )
        )
    for made in spans:
        made.trace_id = trace
    return traces(*spans, resource=_resource(orders))


def _resource(orders: Orders) -> dict[str, object]:
    resource: dict[str, object] = {
        "service.name": orders.producer,
        "service.instance.id": orders.producer,
    }
    return resource | ({"session.id": orders.session} if orders.session else {})
