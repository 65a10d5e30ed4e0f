"""OTLP over gRPC: raw request bytes to the sink, its verdict back as a status.

Decides nothing but the mapping of verdicts: Rejected is INVALID_ARGUMENT, anything else UNAVAILABLE with
a delay, for these are the only refusals after which an exporter tries again. Bodies are not parsed here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, NoReturn
from urllib.parse import unquote

import grpc
import grpc.aio

from agentrund.model.errors import AgentrundError, Overloaded, Rejected, Unavailable
from agentrund.model.otlp import Encoding, Peer, Signal
from agentrund.receivers import rpc_status
from agentrund.receivers.sink import OtlpSink, Taken

RECEIVE_BYTES: Final = 64 << 20
"""The OTLP specification's recommendation; with gRPC's own 4 MiB one long history is lost for good."""
RUN_HEADER: Final = "x-agentrund-run-id"

_SERVICES: Final = {
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
    Signal.METRICS: "opentelemetry.proto.collector.metrics.v1.MetricsService",
}
_SUCCESS: Final = b""
"""An Export response with ``partial_success`` unset has no bytes."""
_RETRY_S: Final = 5.0

_log: Final = logging.getLogger(__name__)

_Context = grpc.aio.ServicerContext[bytes, bytes]


class OtlpGrpcServer:
    """The gRPC door. ``start`` binds, ``stop`` lets the calls under way finish."""

    def __init__(self, sink: OtlpSink, *, receive_bytes: int = RECEIVE_BYTES) -> None:
        self._sink = sink
        self._takes: set[asyncio.Task[Taken]] = set()
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", receive_bytes),
                # With it a second collector would silently share the port.
                ("grpc.so_reuseport", 0),
            ]
        )
        for signal, service in _SERVICES.items():
            self._server.add_generic_rpc_handlers((self._handlers(signal, service),))

    async def start(self, address: str) -> int:
        """Bind ``host:port`` and serve; returns the port. Raises Unavailable where it cannot be bound."""
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise _cannot_bind(address) from error
        if port == 0:
            raise _cannot_bind(address)
        await self._server.start()
        return port

    async def stop(self, grace: float) -> None:
        """Refuse new calls, give those under way ``grace`` seconds, and wait for every store to end."""
        await self._server.stop(grace)
        if self._takes:
            await asyncio.wait(self._takes)

    def _handlers(self, signal: Signal, service: str) -> grpc.GenericRpcHandler[bytes, bytes]:
        async def export(body: bytes, context: _Context) -> bytes:
            return await self._export(signal, body, context)

        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(export)
        return grpc.method_handlers_generic_handler(service, {"Export": handler})

    async def _export(self, signal: Signal, body: bytes, context: _Context) -> bytes:
        host, port = parse_peer(context.peer())
        peer = Peer(host, port, _run_id(context))
        # A task of its own: a caller that gives up must not cut a store in half.
        take = asyncio.ensure_future(self._sink.take(signal, Encoding.PROTOBUF, body, peer))
        self._takes.add(take)
        take.add_done_callback(self._taken)
        try:
            await asyncio.shield(take)
        except AgentrundError as error:
            await _refuse(context, error)
        except Exception:  # noqa: BLE001 - a bug here must not reach the sender as UNKNOWN with a traceback
            _log.exception("a %s request from %s failed", signal, context.peer())
            await _refuse(context, Unavailable("internal error; see the collector's log"))
        return _SUCCESS

    def _taken(self, take: asyncio.Task[Taken]) -> None:
        self._takes.discard(take)
        if not take.cancelled():
            # Looked at, so that nothing is said of it where the caller has gone.
            take.exception()


def parse_peer(peer: str) -> tuple[str | None, int | None]:
    """Host and port of gRPC's peer string (``ipv4:127.0.0.1:4317``, ``ipv6:[::1]:4317``), or Nones."""
    family, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    if family not in ("ipv4", "ipv6") or not port.isdecimal():
        return None, None
    return host.removeprefix("[").removesuffix("]"), int(port)


def _run_id(context: _Context) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == RUN_HEADER:
            return value if isinstance(value, str) else value.decode("utf-8", "replace")
    return None


async def _refuse(context: _Context, error: AgentrundError) -> NoReturn:
    code = grpc.StatusCode.UNAVAILABLE
    retry_s: float | None = error.retry_s if isinstance(error, Overloaded) else _RETRY_S
    if isinstance(error, Rejected):
        code, retry_s = grpc.StatusCode.INVALID_ARGUMENT, None
    number: int = code.value[0]
    trailing: list[tuple[str, Any]] = [
        (rpc_status.DETAILS_KEY, rpc_status.status(number, error.message, retry_s))
    ]
    if retry_s is not None:
        trailing.append((rpc_status.RETRY_KEY, rpc_status.retry_info(retry_s)))
    await context.abort(code, error.message, tuple(trailing))


def _cannot_bind(address: str) -> Unavailable:
    return Unavailable(
        f"cannot listen on {address} for OTLP/gRPC: the address is in use or not ours",
        hint="stop whatever listens there, or choose another address",
    )
