"""A gRPC server that stands again where gRPC itself has given it up.

One call whose path is no UTF-8 ends a ``grpc.aio`` server for good (seen with 1.85), and anybody who can
connect can send it, before any token is looked at. Its port is taken again at once; calls under way are
answered, those that come in between are refused in a way that senders repeat. Knows nothing of OTLP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final

import grpc.aio

from agentrund.model.errors import Unavailable

LOOK_S: Final = 0.1
_GRACE_S: Final = 1.0
_TELL_EVERY_S: Final = 60.0
_GRPC_DECODES: Final = ("_server_main_loop", "_decode")
"""Of gRPC, where a path is read, and a header."""

_log: Final = logging.getLogger(__name__)


class StandingServer:
    """``make`` builds a server; ``bind`` gives it an address and returns the port, or raises Unavailable."""

    def __init__(
        self, make: Callable[[], grpc.aio.Server], bind: Callable[[grpc.aio.Server, str], int]
    ) -> None:
        self._make = make
        self._bind = bind
        self._server: grpc.aio.Server | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._times = 0
        self._told_at: float | None = None

    async def start(self, address: str) -> int:
        """Bind ``host:port`` and serve; returns the port. Raises Unavailable where it cannot be bound."""
        for name in ("asyncio", "grpc._cython.cygrpc"):
            logging.getLogger(name).addFilter(_is_news)
        port = await self._serve(address)
        self._watcher = asyncio.create_task(self._watch(f"{address.rpartition(':')[0]}:{port}"))
        return port

    async def stop(self, grace: float) -> None:
        """Refuse new calls, and give those under way ``grace`` seconds."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(grace)
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def _serve(self, address: str) -> int:
        server = self._make()
        port = self._bind(server, address)
        await server.start()
        self._server = server
        return port

    async def _watch(self, address: str) -> None:
        while True:
            try:
                await self._until_it_ends()
            except Exception as error:  # noqa: BLE001 - whatever it was, nobody listens now
                self._tell(error)
            while self._server is None:
                with suppress(Unavailable):  # the old one has not let go of it yet
                    await self._serve(address)
                    break
                await asyncio.sleep(LOOK_S)

    async def _until_it_ends(self) -> None:
        server = self._server
        assert server is not None
        try:
            while await server.wait_for_termination(LOOK_S):
                pass
        except asyncio.CancelledError:
            raise
        except Exception:
            self._server = None
            leave = asyncio.create_task(server.stop(_GRACE_S))
            self._leaving.add(leave)
            leave.add_done_callback(self._leaving.discard)
            raise

    def _tell(self, error: Exception) -> None:
        self._times += 1
        now = asyncio.get_running_loop().time()
        if self._told_at is None or now - self._told_at >= _TELL_EVERY_S:
            self._told_at = now
            _log.warning(
                "gRPC gave its server up over a call (%s); it is started again (%d times so far)",
                error,
                self._times,
            )


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line is to be kept: gRPC prints all of what is no UTF-8, secrets too."""
    error = record.exc_info[1] if record.exc_info and record.exc_info[1] else record.msg
    return not (isinstance(error, UnicodeDecodeError) and _ends_in(error.__traceback__) in _GRPC_DECODES)


def _ends_in(traceback: TracebackType | None) -> str:
    name = ""
    while traceback is not None:
        name, traceback = traceback.tb_frame.f_code.co_name, traceback.tb_next
    return name.rpartition(".")[2]
