"""Recorded request bodies to a collector: ``otlp_send.py ADDRESS SIGNAL=FILE ...``."""

from __future__ import annotations

import sys
from pathlib import Path

import grpc

SERVICES = {
    "traces": "trace.v1.TraceService",
    "logs": "logs.v1.LogsService",
    "metrics": "metrics.v1.MetricsService",
}


def send(address: str, signal: str, body: bytes, metadata: tuple[tuple[str, str], ...] = ()) -> bytes:
    """One Export call with raw bytes and headers; returns the raw answer."""
    with grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)]) as channel:
        method = f"/opentelemetry.proto.collector.{SERVICES[signal]}/Export"
        return channel.unary_unary(method, request_serializer=None, response_deserializer=None)(
            body, timeout=30, metadata=metadata
        )


if __name__ == "__main__":
    for argument in sys.argv[2:]:
        signal, _, path = argument.partition("=")
        send(sys.argv[1], signal, Path(path).read_bytes())
