"""Lets gRPC calls with the token pass; all others are answered UNAUTHENTICATED with nothing of them read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio

from agentrund.receivers.bearer import HEADER, WANTED, Bearer

if TYPE_CHECKING:
    Interceptor = grpc.aio.ServerInterceptor[bytes, bytes]
    Handler = grpc.RpcMethodHandler[bytes, bytes]
    Context = grpc.aio.ServicerContext[bytes, bytes]
else:
    Interceptor = grpc.aio.ServerInterceptor


class GrpcGate(Interceptor):
    """``bearer`` judges. A call's peer is known to its handler only, so that is who asks."""

    def __init__(self, bearer: Bearer) -> None:
        self._bearer = bearer

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler of a call."""
        if self._bearer.is_carried(_values(handler_call_details.invocation_metadata or ())):
            return await continuation(handler_call_details)
        # As if it were a stream: of that nothing is read that nobody asks for.
        return grpc.stream_unary_rpc_method_handler(self._refuse)

    async def _refuse(self, _requests: AsyncIterator[bytes], context: Context) -> NoReturn:
        self._bearer.refuse(context.peer())
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, WANTED)


def _values(metadata: Any) -> Iterator[str]:
    return (value for key, value in metadata if key == HEADER and isinstance(value, str))
