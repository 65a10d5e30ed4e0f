"""One HTTP listener: uvicorn's httptools protocol in our own loop, heads bounded.

uvicorn's server is not used: it wakes ten times a second and wants the signals. What it leaves to a proxy
is done here: a head that does not end, in bytes or in time.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from agentrund.model.errors import Unavailable

HEAD_BYTES: Final = 64 << 10
HEAD_S: Final = 30.0
"""A connection that has not brought a whole head after this long is closed."""
LINGER_S: Final = 30.0
"""What is still to come of a request that was refused may take so long."""
KEEP_ALIVE_S: Final = 3600
"""Exporters keep a connection for their whole life, and some drop a batch that meets one just closed."""
BACKLOG: Final = 1024

_HTTP2: Final = b"PRI * HTTP/2.0\r\n"
"""How everybody begins who speaks HTTP/2, and gRPC with it."""
Refusal = Callable[[str], str]
"""Called with ``host:port`` of somebody who speaks HTTP/2; gives what to tell them, in one line."""


class _Protocol(HttpToolsProtocol):
    """Closes connections whose head is too long or too late, and those that send on after a refusal."""

    def __init__(self, refuse_http2: Refusal, *args: Any, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self._refuse_http2 = refuse_http2
        self._is_new = True
        self._head_bytes = 0
        self._in_head = True
        self._in_body = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._await(None)

    def data_received(self, data: bytes) -> None:
        if self._is_new and data.startswith(_HTTP2):
            self._send_away()
            return
        self._is_new = False
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.transport.close()

    def _send_away(self) -> None:
        """Answer somebody who speaks HTTP/2 in our own words: gRPC's clients then say what they have met."""
        host, port = self.client or ("?", 0)
        body = f"{self._refuse_http2(f'{host}:{port}')}\n".encode()
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._await(HEAD_S)

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body, self._head_bytes = False, True, 0
        self._await(None)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body:  # it is read on, and thrown away: hung up on, its sender may not see the answer
            self._await(LINGER_S)

    def _await(self, seconds: float | None) -> None:
        """Close the connection in so many seconds; None: not any more."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.close)


class HttpServer:
    """Serves an ASGI application on a listening socket, over TLS where there is a context for it."""

    def __init__(
        self, app: Any, listening: socket.socket, tls: ssl.SSLContext | None, refuse_http2: Refusal
    ) -> None:
        self._refuse_http2 = refuse_http2
        self._socket = listening
        self._tls = tls
        self._config = uvicorn.Config(
            app,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._config.load()
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Accept connections."""
        # It says of every stranger what no one can do anything about.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Protocol(self._refuse_http2, self._config, self._state, {}),
            sock=self._socket,
            ssl=self._tls,
        )

    async def stop(self, grace: float) -> None:
        """Refuse new connections, give requests under way ``grace`` seconds, cancel them, hang up."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            _, late = await asyncio.wait(set(self._state.tasks), timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in list(self._state.connections):
            connection.transport.close()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises Unavailable where the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)  # noqa: FBT003 - the socket API's own signature
    except OSError as error:
        sock.close()
        raise _cannot_listen(host, port, error) from error
    return sock


def _cannot_listen(host: str, port: int, error: OSError) -> Unavailable:
    return Unavailable(
        f"cannot listen on {host}:{port} for HTTP: {error.strerror}",
        hint="stop whatever listens there, or choose another address",
    )
