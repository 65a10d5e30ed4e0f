"""Replays captures through decoding, mapping and the OTLP sequencer, as the service does."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agentrund.model.otlp import Encoding, Peer, Signal
from agentrund.model.source import Identity
from agentrund.receivers.decode.mapping import map_item
from agentrund.receivers.decode.otlp import decode
from agentrund.sequencer.otlp_runs import OtlpRuns
from support.otlp_captures import Request
from support.otlp_execute import Executor
from support.otlp_json import to_json, to_protobuf
from support.otlp_restart import restore

START = 1_795_974_000.0
KILLED = "process exited: killed by SIGKILL"


def identity_of(request: Request, processes: dict[int, int]) -> Identity:
    """The kernel's word on the sender; all connections are one process unless ``processes`` says otherwise."""
    return Identity(pid=processes.get(request.port, 4242), pid_start=1, boot_id="b", uid=1000)


def feed_all(
    requests: Iterable[Request],
    *,
    runs: OtlpRuns | None = None,
    processes: dict[int, int] | None = None,
    identified: bool = True,
    restarts: Container[int] = (),
) -> tuple[OtlpRuns, Executor, float]:
    """Take every request at its time; returns the state after the last one.

    Before the requests whose place is in ``restarts`` the collector stops and starts again: what it
    held is written, and what it knows then is what the records of its runs say.
    """
    runs, executor, now = runs or OtlpRuns(), Executor(), START
    seen: set[tuple[Signal, bytes]] = set()
    for rq, request in enumerate(requests, 1):
        if rq - 1 in restarts:
            executor.perform_parts(runs.shutdown(now), now)
            runs = OtlpRuns()
            for run in executor.runs.values():
                restore(runs, run.records, now, ended=not run.machine.state.is_open)
        if (request.signal, request.body) in seen:
            continue
        seen.add((request.signal, request.body))
        now = max(now, START + request.at)
        executor.perform_parts(runs.tick(now), now)
        identity = identity_of(request, processes or {}) if identified else Identity()
        items = [map_item(i) for i in decode(request.signal, request.encoding, request.body) if i is not None]
        taking = runs.take(rq, now, Peer("127.0.0.1", request.port, None, identity), items, now)
        executor.perform_parts(taking, now)
    return runs, executor, now


def replay(
    requests: Iterable[Request],
    *,
    cause: str = "process exited",
    processes: dict[int, int] | None = None,
    restarts: Container[int] = (),
) -> Executor:
    """Take every request, then let the processes end and the grace pass."""
    requests = list(requests)
    runs, executor, now = feed_all(requests, processes=processes, restarts=restarts)
    for identity in {identity_of(r, processes or {}) for r in requests}:
        runs.process_exited(identity, cause, now + 0.05, now + 0.05)
    for step in range(1, 16):
        executor.perform_parts(runs.tick(now + step * 0.25), now + step * 0.25)
    return executor


def reversed_requests(requests: list[Request]) -> list[Request]:
    """The same requests, the last one first, at the times the first ones had."""
    return [replace(r, at=t.at) for r, t in zip(reversed(requests), requests, strict=True)]


_NOTHING = {Encoding.PROTOBUF: b"\xf8\x3f\x00", Encoding.JSON: b"\n"}
"""Bytes that say nothing."""


def doubled(requests: list[Request]) -> list[Request]:
    """Every request twice; the second differs in bytes that say nothing, so only items repeat."""
    return [copy for r in requests for copy in (r, replace(r, body=r.body + _NOTHING[r.encoding]))]


def recoded(requests: list[Request]) -> list[Request]:
    """The same requests in the encoding they did not come in."""
    return [_to_protobuf(r) if r.encoding is Encoding.JSON else _to_json(r) for r in requests]


def _to_protobuf(request: Request) -> Request:
    body = to_protobuf(request.signal, request.body)
    return replace(request, encoding=Encoding.PROTOBUF, body=body)


def _to_json(request: Request) -> Request:
    return replace(request, encoding=Encoding.JSON, body=to_json(request.signal, request.body))


def split(requests: list[Request]) -> list[Request]:
    """One span or log record per request."""
    return [piece for r in requests for piece in _pieces(r)]


def _pieces(request: Request) -> list[Request]:
    if request.signal is Signal.METRICS:
        return [request]
    if request.encoding is Encoding.JSON:
        return recoded(_pieces(_to_protobuf(request)))
    traces = request.signal is Signal.TRACES
    kind = ExportTraceServiceRequest if traces else ExportLogsServiceRequest
    out: list[Request] = []
    for resource in getattr(kind.FromString(request.body), f"resource_{'spans' if traces else 'logs'}"):
        for scope in getattr(resource, f"scope_{'spans' if traces else 'logs'}"):
            for item in scope.spans if traces else scope.log_records:
                one = kind()
                to_resource = (one.resource_spans if traces else one.resource_logs).add()
                to_resource.resource.CopyFrom(resource.resource)
                to_scope = (to_resource.scope_spans if traces else to_resource.scope_logs).add()
                to_scope.scope.CopyFrom(scope.scope)
                (to_scope.spans if traces else to_scope.log_records).append(item)
                out.append(replace(request, body=one.SerializeToString()))
    return out
