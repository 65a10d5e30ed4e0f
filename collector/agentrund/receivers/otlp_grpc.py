"""OTLP over gRPC: raw request bytes to the sink, its verdict back as a status.

Decides nothing but the mapping of verdicts: Rejected is INVALID_ARGUMENT, anything else UNAVAILABLE with
a delay, for these are the only refusals after which an exporter tries again. Bodies are not parsed here.

Export is unary for its callers and stream-unary for us: on the wire that is the same, and here it
means that a request is not read before the sink has room for it. Until then its sender waits behind
HTTP/2's flow control, and it costs us no memory worth counting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, Final, NoReturn
from urllib.parse import unquote

import grpc
import grpc.aio

from agentrund.model.errors import AgentrundError, Overloaded, Rejected, Unavailable
from agentrund.model.otlp import Encoding, Peer, Signal
from agentrund.receivers import export_response, rpc_status
from agentrund.receivers.bearer import Bearer
from agentrund.receivers.budget import Claim
from agentrund.receivers.grpc_gate import GrpcGate
from agentrund.receivers.sink import OtlpSink, Receipt
from agentrund.receivers.standing_server import StandingServer
from agentrund.receivers.stores import Stores

RECEIVE_BYTES: Final = 64 << 20
"""The OTLP specification's recommendation; with gRPC's own 4 MiB one long history is lost for good."""
RUN_HEADER: Final = "x-agentrund-run-id"

_SERVICES: Final = {
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
    Signal.METRICS: "opentelemetry.proto.collector.metrics.v1.MetricsService",
}
STREAMS: Final = 128
"""Requests of one connection at a time; its sender keeps the others."""
UNREQUESTED_S: Final = 3600
HANDSHAKE_S: Final = 30.0
PING_EVERY_S: Final = 60.0
PING_ANSWER_S: Final = 20.0
READ_S: Final = 10.0
"""A request that is not whole after this long makes room, where others wait."""

_RETRY_S: Final = 5.0
_GIVEN_UP_S: Final = 1.0

_log: Final = logging.getLogger(__name__)

_Context = grpc.aio.ServicerContext[bytes, bytes]


class OtlpGrpcServer:
    """The gRPC door. ``start`` binds, ``stop`` lets the calls under way finish."""

    def __init__(
        self,
        sink: OtlpSink,
        *,
        receive_bytes: int = RECEIVE_BYTES,
        bearer: Bearer | None = None,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        """``bearer`` is demanded of every call; with ``credentials`` the listener speaks TLS."""
        self._sink = sink
        self._receive_bytes = receive_bytes
        self._port = 0
        self._credentials = credentials
        self._bearer = bearer
        self._stores = Stores()
        self._beside: list[grpc.GenericRpcHandler[bytes, bytes]] = []
        self._server = StandingServer(self._make, self._bind)

    def _make(self) -> grpc.aio.Server:
        server = grpc.aio.server(
            interceptors=[] if self._bearer is None else [GrpcGate(self._bearer)],
            options=[
                ("grpc.max_receive_message_length", self._receive_bytes),
                ("grpc.max_concurrent_streams", STREAMS),
                # How long a call waits is for its sender to say; gRPC would cancel it after 30 s.
                ("grpc.server_max_unrequested_time_in_server", UNREQUESTED_S),
                # A probe would open the window of every waiting request to megabytes.
                ("grpc.http2.bdp_probe", 0),
                # A sender's keepalive pings are no reason to hang up on it, batch and all.
                ("grpc.http2.max_ping_strikes", 0),
                # Who connects and says nothing that HTTP/2 knows is let go.
                ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_S * 1000)),
                # Who does not answer is gone, as when a cable was pulled: nothing else tells for hours.
                ("grpc.keepalive_time_ms", int(PING_EVERY_S * 1000)),
                ("grpc.keepalive_timeout_ms", int(PING_ANSWER_S * 1000)),
                ("grpc.http2.ping_timeout_ms", int(PING_ANSWER_S * 1000)),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.max_pings_without_data", 0),
                # With it a second collector would silently share the port.
                ("grpc.so_reuseport", 0),
            ],
        )
        for signal, service in _SERVICES.items():
            server.add_generic_rpc_handlers((self._handlers(signal, service),))
        server.add_generic_rpc_handlers(self._beside)
        return server

    def _bind(self, server: grpc.aio.Server, address: str) -> int:
        try:
            if self._credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            raise _cannot_bind(address) from error
        if port == 0:
            raise _cannot_bind(address)
        return port

    def serve_too(self, handler: grpc.GenericRpcHandler[bytes, bytes]) -> None:
        """Serve another service on the same port; before ``start``."""
        self._beside.append(handler)

    def peer_of(self, context: _Context) -> Peer:
        """Who is at the other end of a call, as far as its connection tells."""
        host, port = parse_peer(context.peer())
        return Peer(
            host,
            port,
            _header(context, RUN_HEADER),
            our_port=self._port,
            client=_header(context, "user-agent") or "",
        )

    async def start(self, address: str) -> int:
        """Bind ``host:port`` and serve; returns the port. Raises Unavailable where it cannot be bound."""
        self._port = await self._server.start(address)
        return self._port

    async def stop(self, grace: float) -> None:
        """Refuse new calls, give those under way ``grace`` seconds, and wait for every store to end."""
        await self._server.stop(grace)
        await self._stores.settled()

    def _handlers(self, signal: Signal, service: str) -> grpc.GenericRpcHandler[bytes, bytes]:
        async def export(_requests: AsyncIterator[bytes], context: _Context) -> bytes:
            return await self._export(signal, context)

        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_unary_rpc_method_handler(export)
        return grpc.method_handlers_generic_handler(service, {"Export": handler})

    async def _export(self, signal: Signal, context: _Context) -> bytes:
        try:
            claim = await self._sink.admit(context.time_remaining(), context.peer())
            try:
                # Now: of a call that gRPC has ended it does not tell any more whose it was.
                peer = self.peer_of(context)
                body = await self._read(context, claim, peer)
                receipt = await self._store(signal, body, peer)
            finally:
                claim.close()
        except AgentrundError as error:
            await _refuse(context, error)
        except Exception:  # noqa: BLE001 - a bug here must not reach the sender as UNKNOWN with a traceback
            _log.exception("a %s request from %s failed", signal, context.peer())
            await _refuse(context, Unavailable("internal error; see the collector's log"))
        return export_response.encode(signal, Encoding.PROTOBUF, receipt)

    async def _read(self, context: _Context, claim: Claim, peer: Peer) -> bytes:
        """The request's one message. Raises Rejected where there is none, Overloaded where it never ends."""
        sender = context.peer()
        read = asyncio.ensure_future(context.read())
        try:
            while not (await asyncio.wait((read,), timeout=READ_S))[0]:
                if self._sink.cut():
                    raise Overloaded("the request did not come to its end; send it again", retry_s=_RETRY_S)
        finally:
            # gRPC cancels us where it has refused the message itself, as too large: that is to be seen too.
            message: object = read.result() if read.done() and not read.cancelled() else None
            read.cancel()
            if message is not None and not isinstance(message, bytes) and not _has_given_up(context):
                reason = f"{sender} sent no message of at most {self._receive_bytes} bytes"
                self._sink.note_rejected(reason, peer)
        if isinstance(message, bytes):
            self._sink.note_size(sender, len(message), claim)
            return message
        raise Rejected("bad_otlp", "a request has one message")

    async def _store(self, signal: Signal, body: bytes, peer: Peer) -> Receipt:
        return await self._stores.see_through(self._sink.take(signal, Encoding.PROTOBUF, body, peer))


def parse_peer(peer: str) -> tuple[str | None, int | None]:
    """Host and port of gRPC's peer string (``ipv4:127.0.0.1:4317``, ``ipv6:[::1]:4317``), or Nones."""
    family, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    if family not in ("ipv4", "ipv6") or not port.isdecimal():
        return None, None
    return host.removeprefix("[").removesuffix("]"), int(port)


def _header(context: _Context, name: str) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == name:
            return value if isinstance(value, str) else value.decode("utf-8", "replace")
    return None


def _has_given_up(context: _Context) -> bool:
    """Whether the sender's time is over, as far as clocks agree."""
    remaining: float | None = context.time_remaining()
    return remaining is not None and remaining < _GIVEN_UP_S


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
    try:
        await context.abort(code, error.message, tuple(trailing))
    except (grpc.aio.InternalError, grpc.aio.UsageError) as gone:
        # Its connection broke meanwhile: there is nobody to tell.
        raise asyncio.CancelledError from gone


def _cannot_bind(address: str) -> Unavailable:
    return Unavailable(
        f"cannot listen on {address} for OTLP/gRPC: the address is in use or not ours",
        hint="stop whatever listens there, or choose another address",
    )
