"""Whether a gRPC call carries the token: judged from its headers, before anything of its body is read."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc
import grpc.aio

if TYPE_CHECKING:
    Interceptor = grpc.aio.ServerInterceptor[bytes, bytes]
    Handler = grpc.RpcMethodHandler[bytes, bytes]
    Context = grpc.aio.ServicerContext[bytes, bytes]
else:
    Interceptor = grpc.aio.ServerInterceptor

_HEADER: Final = "authorization"
_SCHEME: Final = "bearer"
_WARN_EVERY_S: Final = 60.0
_WANTED: Final = "this collector wants a token: send the header `authorization: Bearer <token>`"

_log: Final = logging.getLogger(__name__)


class BearerGate(Interceptor):
    """Lets calls with ``token`` pass and answers all others UNAUTHENTICATED; ``refused`` counts those."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._warned_at: float | None = None
        self.refused = 0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler of a call."""
        if self._is_carried_by(handler_call_details.invocation_metadata or ()):
            return await continuation(handler_call_details)
        # As if it were a stream: of that nothing is read that nobody asks for.
        return grpc.stream_unary_rpc_method_handler(self._refuse)

    def _is_carried_by(self, metadata: Any) -> bool:
        for key, value in metadata:
            if key == _HEADER and isinstance(value, str):
                scheme, _, given = value.partition(" ")
                # It takes the same time wherever the two differ.
                if hmac.compare_digest(given.strip().encode(), self._token) and scheme.lower() == _SCHEME:
                    return True
        return False

    async def _refuse(self, _requests: AsyncIterator[bytes], context: Context) -> NoReturn:
        self.refused += 1
        now = asyncio.get_running_loop().time()
        if self._warned_at is None or now - self._warned_at >= _WARN_EVERY_S:
            self._warned_at = now
            _log.warning(
                "OTLP/gRPC: %d calls without the right token so far, the last from %s (said once a minute)",
                self.refused,
                context.peer(),
            )
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, _WANTED)
