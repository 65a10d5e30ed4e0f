"""The three ways into the collector's OTLP side, behind one face: gRPC, HTTP with protobuf, HTTP with JSON."""

from __future__ import annotations

import gzip
import http.client
import json
import zlib
from dataclasses import dataclass, field
from typing import Any

import grpc
import zstandard
from google.rpc import status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from agentrund.model.otlp import Signal
from support.daemon import Daemon
from support.otlp_json import to_json
from support.otlp_send import SERVICES

COMPRESS = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.compress}
DOORS = ("grpc", "protobuf", "json")
TYPES = {"protobuf": "application/x-protobuf", "json": "application/json"}

OK, BAD, TOO_LARGE, BUSY, STRANGER, UNKNOWN = "ok", "bad", "too large", "busy", "stranger", "unknown"
_OF_GRPC = {
    grpc.StatusCode.OK: OK,
    grpc.StatusCode.INVALID_ARGUMENT: BAD,
    grpc.StatusCode.RESOURCE_EXHAUSTED: TOO_LARGE,
    grpc.StatusCode.UNAVAILABLE: BUSY,
    # Of a call that a stop of the collector cuts off; exporters send it again too.
    grpc.StatusCode.CANCELLED: BUSY,
    grpc.StatusCode.UNAUTHENTICATED: STRANGER,
    grpc.StatusCode.UNIMPLEMENTED: UNKNOWN,
}
_OF_HTTP = {200: OK, 400: BAD, 413: TOO_LARGE, 503: BUSY, 401: STRANGER, 404: UNKNOWN}


@dataclass
class Answer:
    """What a sender was told. ``retry`` says whether and when to send again, in seconds."""

    kind: str
    message: str = ""
    rejected: int = 0
    retry: float | None = None
    headers: dict[str, str] = field(default_factory=dict)


def send(
    daemon: Daemon,
    door: str,
    signal: Signal,
    body: bytes,
    *,
    coding: str | None = None,
    raw: bool = False,
    **headers: str,
) -> Answer:
    """Send a request given as protobuf; ``raw``: exactly these bytes. One connection each."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    if door == "grpc":
        return _call(daemon, signal, body, coding, headers)
    if door == "json" and not raw:
        body = to_json(signal, body)
    return post(daemon, f"/v1/{signal}", body, coding=coding, door=door, **headers)


def post(
    daemon: Daemon, path: str, body: Any, *, door: str, coding: str | None = None, **headers: str
) -> Answer:
    """POST a body as it is; an iterable goes in chunks."""
    connection = http.client.HTTPConnection(daemon.http, timeout=60)
    try:
        said = {"content-type": TYPES[door], **{k.replace("_", "-"): v for k, v in headers.items()}}
        if coding is not None:
            body = COMPRESS[coding](body)
            said["content-encoding"] = coding
        connection.request("POST", path, body, said)
        response = connection.getresponse()
        return _read(door, response, response.read())
    finally:
        connection.close()


def _read(door: str, response: http.client.HTTPResponse, body: bytes) -> Answer:
    headers = {name.lower(): value for name, value in response.getheaders()}
    retry = headers.get("retry-after")
    answer = Answer(_OF_HTTP[response.status], retry=None if retry is None else float(retry), headers=headers)
    assert headers["content-type"] == TYPES[door]
    if response.status == 200:
        answer.rejected, answer.message = _partial(door, body)
    elif door == "json":
        answer.message = json.loads(body)["message"]
    else:
        answer.message = status_pb2.Status.FromString(body).message
    return answer


def _partial(door: str, body: bytes) -> tuple[int, str]:
    if door == "json":
        partial = json.loads(body).get("partialSuccess")
        if partial is None:
            assert body == b"{}"
            return 0, ""
        (count,) = [int(value) for key, value in partial.items() if key.startswith("rejected")]
        return count, partial["errorMessage"]
    response = ExportTraceServiceResponse.FromString(body)
    return response.partial_success.rejected_spans, response.partial_success.error_message


def _call(daemon: Daemon, signal: Signal, body: bytes, coding: str | None, headers: dict[str, str]) -> Answer:
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    compression = {None: None, "gzip": grpc.Compression.Gzip, "deflate": grpc.Compression.Deflate}[coding]
    with grpc.insecure_channel(daemon.otlp, options=options) as channel:
        call = channel.unary_unary(f"/opentelemetry.proto.collector.{SERVICES[signal]}/Export")
        try:
            answer = call(body, timeout=60, compression=compression, metadata=tuple(headers.items()))
        except grpc.RpcError as error:
            trailing = dict(error.trailing_metadata())
            retry = trailing.get("google.rpc.retryinfo-bin")
            return Answer(_OF_GRPC[error.code()], error.details(), retry=None if retry is None else 0.0)
    rejected, message = _partial("grpc", answer)
    return Answer(OK, message, rejected)
