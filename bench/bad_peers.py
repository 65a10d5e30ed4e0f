"""What five hundred bad peers cost a good one: its p99 among them, over its p99 alone, on either door."""

from __future__ import annotations

import json
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.server import Server

EACH = 125
CALLS = 500
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@contextmanager
def bad_peers(server: Server, address: str) -> Iterator[None]:
    """Lines and requests that never end, peers that read nothing or say nothing."""
    host, _, port = address.rpartition(":")
    over = threading.Event()

    def never() -> Iterator[bytes]:
        over.wait()
        yield from ()

    with ExitStack() as stack:
        stack.callback(over.set)
        for _ in range(EACH):
            slow = stack.enter_context(socket.socket(socket.AF_UNIX))
            slow.connect(str(server.socket))
            slow.sendall(b'{"op":"hello",')
            deaf = stack.enter_context(socket.socket(socket.AF_UNIX))
            deaf.connect(str(server.socket))
            deaf.setblocking(False)  # noqa: FBT003 - the socket API's own signature
            deaf.send(b"nonsense\n" * 5000)
            stack.enter_context(socket.create_connection((host, int(port)))).sendall(b"PRI")
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = stack.enter_context(grpc.insecure_channel(address, options=options))
            channel.stream_unary(EXPORT).future(never())
        yield


def p99(call: Callable[[int], None]) -> float:
    """Seconds that all but a hundredth of the calls stay below."""
    taken = []
    for n in range(CALLS):
        begun = time.perf_counter()
        call(n)
        taken.append(time.perf_counter() - begun)
    return statistics.quantiles(taken, n=100)[98]


def measure() -> dict[str, float]:
    """Alone, among them, alone again; the ratios."""
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder), otlp="127.0.0.1:0") as server:
        address = json.loads(server.socket.with_suffix(".json").read_text())["otlp_grpc"]
        with socket.socket(socket.AF_UNIX) as peer, grpc.insecure_channel(address) as channel:
            peer.connect(str(server.socket))
            answers = peer.makefile("rb")
            peer.sendall(b'{"op":"hello","source":"good"}\n')
            answers.readline()
            numbers = iter(range(1, 1 << 30))
            export = channel.unary_unary(EXPORT)

            def line(_n: int) -> None:
                peer.sendall(b'{"n":%d,"type":"log","payload":{"message":"x"}}\n' % next(numbers))
                answers.readline()

            def request(_n: int) -> None:
                one = ExportTraceServiceRequest()
                span = one.resource_spans.add().scope_spans.add().spans.add(name="good", span_id=b"12345678")
                span.trace_id = next(numbers).to_bytes(16, "big")
                export(one.SerializeToString(), timeout=60)

            doors = {"socket": line, "gRPC": request}
            alone = {door: p99(call) for door, call in doors.items()}
            with bad_peers(server, address):
                among = {door: p99(call) for door, call in doors.items()}
            again = {door: p99(call) for door, call in doors.items()}
    return {
        f"{door} p99 ratio": round(among[door] / statistics.mean((alone[door], again[door])), 2)
        for door in doors
    }
