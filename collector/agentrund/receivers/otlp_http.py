"""OTLP over HTTP as an ASGI application: request bodies to the sink, its verdict back as a status.

Decides nothing but the mapping of verdicts: Rejected is 400, too large 413, anything else 503 with
``Retry-After``, for that is what an exporter sends again. Bodies are not parsed here, and not read before
the sink has room for them: until then a sender waits behind TCP's flow control.
https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from agentrund.model.errors import AgentrundError, Overloaded, Rejected
from agentrund.model.otlp import Encoding, Peer, Signal
from agentrund.receivers import export_response, rpc_status
from agentrund.receivers.bearer import WANTED, Bearer
from agentrund.receivers.budget import Claim
from agentrund.receivers.otlp_inflate import CODINGS, TooLargeError, inflate
from agentrund.receivers.rpc_status import Code
from agentrund.receivers.sink import OtlpSink, Receipt
from agentrund.receivers.stores import Stores

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

RUN_HEADER: Final = b"x-agentrund-run-id"
PATIENCE_S: Final = 10.0
"""What exporters wait for an answer by default; none of them says."""
READ_S: Final = 10.0
"""A request that sends nothing for this long makes room, where others wait."""
OUTSIDE_BYTES: Final = 320 << 10
"""What the server has read of a request that waits: one turn at the socket, and where it stopped."""
OUTSIDE: Final = 2
"""Times its largest request is what all that wait may take."""
WAITING_LEAST, WAITING_MAX = 32, 256
RETRY_S: Final = 5.0
AFTER_STOP_S: Final = 1.0
"""When the next collector may be there."""

_PATHS: Final = {f"/v1/{signal}": signal for signal in Signal}
_TYPES: Final = {b"application/x-protobuf": Encoding.PROTOBUF, b"application/json": Encoding.JSON}
_TYPE_OF: Final = {encoding: name for name, encoding in _TYPES.items()}

_log: Final = logging.getLogger(__name__)


class _Answer(Exception):
    """An HTTP status and what to say; ``code`` is google.rpc's."""

    def __init__(self, status: int, code: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers


class _GoneError(Exception):
    """The sender has hung up; nobody waits for an answer."""


class OtlpHttpApp:
    """POST /v1/traces, /v1/logs, /v1/metrics, in protobuf and JSON."""

    def __init__(self, sink: OtlpSink, port: int, *, receive_bytes: int, bearer: Bearer | None) -> None:
        """``port`` is ours, to tell whose connection it is; ``bearer`` is demanded of every request."""
        self._sink = sink
        self._port = port
        self._receive_bytes = receive_bytes
        self._bearer = bearer
        self._outside = 0
        most = OUTSIDE * receive_bytes // OUTSIDE_BYTES
        self._waiting_max = max(WAITING_LEAST, min(WAITING_MAX, most))
        self._stores = Stores()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = dict(scope["headers"])
        encoding = _encoding(headers)
        try:
            body = await self._export(scope, headers, receive)
        except _GoneError:
            return
        except _Answer as answer:
            await _refuse(send, encoding, answer)
        except asyncio.CancelledError:
            # A stop: whether it was stored or not, sent again it is stored once.
            await _refuse(send, encoding, _later("the collector stops; send it again", AFTER_STOP_S))
        except Exception:  # noqa: BLE001 - a bug here is worth sending again for, and is said once, by us
            _log.exception("a request to %s failed", scope["path"])
            await _refuse(send, encoding, _later("internal error; see the collector's log", RETRY_S))
        else:
            await _respond(send, 200, encoding, body)

    async def settled(self) -> None:
        """Every store that has begun has ended."""
        await self._stores.settled()

    async def _export(self, scope: Message, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        signal = self._signal(scope)
        given = headers.get(b"authorization", b"").decode("latin-1")
        if self._bearer is not None and not self._bearer.is_carried([given]):
            self._bearer.refuse(_peer_name(scope))
            raise _Answer(401, Code.UNAUTHENTICATED, WANTED, (b"www-authenticate", b"Bearer"))
        encoding, coding = _form(headers)
        host, port = scope["client"] or (None, None)
        run_id = headers.get(RUN_HEADER, b"").decode("utf-8", "replace") or None
        client = headers.get(b"user-agent", b"").decode("utf-8", "replace")
        peer = Peer(host, port, run_id, our_port=self._port, client=client)
        try:
            self._check_length(headers)
            receipt = await self._take(signal, encoding, coding, peer, receive)
        except TooLargeError as error:
            self._sink.note_rejected(f"{_peer_name(scope)} sent {error.message}", peer)
            raise _Answer(413, Code.RESOURCE_EXHAUSTED, error.message) from error
        except Rejected as error:
            raise _Answer(400, Code.INVALID_ARGUMENT, error.message) from error
        except AgentrundError as error:
            retry_s = error.retry_s if isinstance(error, Overloaded) else RETRY_S
            raise _later(error.message, retry_s) from error
        return export_response.encode(signal, encoding, receipt)

    def _signal(self, scope: Message) -> Signal:
        signal = _PATHS.get(scope["path"].rstrip("/"))
        if signal is None:
            raise _Answer(404, Code.NOT_FOUND, f"there is no {scope['path']}; OTLP is at {', '.join(_PATHS)}")
        if scope["method"] != "POST":
            raise _Answer(405, Code.UNIMPLEMENTED, "an OTLP request is a POST", (b"allow", b"POST"))
        return signal

    def _check_length(self, headers: Mapping[bytes, bytes]) -> None:
        if int(headers.get(b"content-length", b"0")) > self._receive_bytes:
            raise TooLargeError(self._receive_bytes)

    async def _take(
        self, signal: Signal, encoding: Encoding, coding: str, peer: Peer, receive: Receive
    ) -> Receipt:
        sender = f"{peer.host}:{peer.port}"
        claim = await self._admit(sender)
        try:
            body = await self._read(receive)
            if coding in CODINGS:
                body = await self._inflated(coding, body)
            self._sink.note_size(sender, len(body), claim)
            return await self._stores.see_through(self._sink.take(signal, encoding, body, peer))
        finally:
            claim.close()

    async def _admit(self, sender: str) -> Claim:
        if self._outside >= self._waiting_max:
            raise Overloaded("the collector is busy; send it again", retry_s=RETRY_S)
        self._outside += 1
        try:
            return await self._sink.admit(PATIENCE_S, sender)
        finally:
            self._outside -= 1

    async def _read(self, receive: Receive) -> bytes:
        """The body. Raises TooLargeError, Overloaded where it does not come to its end, _GoneError."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._next(receive)
            if message["type"] == "http.disconnect":
                raise _GoneError
            part = message.get("body", b"")
            size += len(part)
            if size > self._receive_bytes:
                raise TooLargeError(self._receive_bytes)
            parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _next(self, receive: Receive) -> Message:
        read = asyncio.ensure_future(receive())
        try:
            while not (await asyncio.wait((read,), timeout=READ_S))[0]:
                if self._sink.cut():
                    raise Overloaded("the request did not come to its end; send it again", retry_s=RETRY_S)
            return read.result()
        finally:
            read.cancel()

    async def _inflated(self, coding: str, body: bytes) -> bytes:
        parts = []
        for part in inflate(coding, body, self._receive_bytes):
            parts.append(part)
            await asyncio.sleep(0)
        return b"".join(parts)


def _encoding(headers: Mapping[bytes, bytes]) -> Encoding | None:
    return _TYPES.get(headers.get(b"content-type", b"").partition(b";")[0].strip().lower())


def _form(headers: Mapping[bytes, bytes]) -> tuple[Encoding, str]:
    """How a body is written, and how that is compressed."""
    encoding = _encoding(headers)
    if encoding is None:
        kinds = " or ".join(kind.decode() for kind in _TYPES)
        raise _Answer(415, Code.INVALID_ARGUMENT, f"a request is {kinds}")
    coding = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
    if coding not in (*CODINGS, "identity", "none", ""):
        known = ", ".join(CODINGS)
        raise _Answer(415, Code.INVALID_ARGUMENT, f"a request's content-encoding is one of {known}, or none")
    return encoding, coding


def _peer_name(scope: Message) -> str:
    host, port = scope["client"] or ("?", 0)
    return f"{host}:{port}"


def _later(message: str, retry_s: float) -> _Answer:
    """Not now: worth sending again after so many seconds."""
    after = str(math.ceil(retry_s)).encode()
    return _Answer(503, Code.UNAVAILABLE, message, (b"retry-after", after))


async def _refuse(send: Send, encoding: Encoding | None, answer: _Answer) -> None:
    """google.rpc.Status in the request's encoding, text where it has none."""
    if encoding is None:
        body = f"{answer.message}\n".encode()
    elif encoding is Encoding.JSON:
        body = rpc_status.status_json(answer.code, answer.message)
    else:
        body = rpc_status.status(answer.code, answer.message)
    await _respond(send, answer.status, encoding, body, *answer.headers)


async def _respond(
    send: Send, status: int, encoding: Encoding | None, body: bytes, *headers: tuple[bytes, bytes]
) -> None:
    kind = b"text/plain; charset=utf-8" if encoding is None else _TYPE_OF[encoding]
    length = str(len(body)).encode()
    start = [(b"content-type", kind), (b"content-length", length), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
