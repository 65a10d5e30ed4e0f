"""The control service over gRPC: messages to the sink's words, its answers and errors back.

Who calls is looked at before anything of a call is read, so each of them is a stream for us of which one
message is asked for; on the wire that is the same as a call of one message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NoReturn, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from agentrund.model.errors import AgentrundError, Damaged, NoSuchRun, Overloaded, Rejected, UsageError
from agentrund.model.otlp import Peer
from agentrund.receivers.control_sink import ControlSink, RunInfo, RunName
from agentrund.v1 import control_pb2 as pb

SERVICE: Final = "agentrund.v1.Control"

_OUTCOMES: Final = {pb.OUTCOME_OK: "ok", pb.OUTCOME_FAILED: "failed"}
_CAUSE: Final = "EndRun"
_CAUSE_MAX: Final = 200

_log: Final = logging.getLogger(__name__)

_Context = grpc.aio.ServicerContext[bytes, bytes]
_Request = TypeVar("_Request", bound=Message)
_Answer = Callable[[Peer, Any], Awaitable[Message]]


def handler(sink: ControlSink, peer_of: Callable[[_Context], Peer]) -> grpc.GenericRpcHandler[bytes, bytes]:
    """The service, for a gRPC server to serve; ``peer_of`` says who is at the other end of a call."""
    calls = _Calls(sink, peer_of)
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "Heartbeat": calls.unary(pb.HeartbeatRequest, calls.heartbeat),
            "EndRun": calls.unary(pb.EndRunRequest, calls.end_run),
            "Status": calls.unary(pb.StatusRequest, calls.status),
            "Tail": grpc.stream_stream_rpc_method_handler(calls.tail),
        },
    )


class _Calls:
    def __init__(self, sink: ControlSink, peer_of: Callable[[_Context], Peer]) -> None:
        self._sink = sink
        self._peer_of = peer_of

    def unary(self, kind: type[Message], answer: _Answer) -> grpc.RpcMethodHandler[bytes, bytes]:
        """A call of one message that is answered with one."""

        async def call(_requests: AsyncIterator[bytes], context: _Context) -> bytes:
            try:
                peer, request = await self._begin(kind, context)
                return (await answer(peer, request)).SerializeToString()
            except Exception as error:  # noqa: BLE001 - what is wrong is for the caller
                await _refuse(context, error)

        return grpc.stream_unary_rpc_method_handler(call)

    async def tail(self, _requests: AsyncIterator[bytes], context: _Context) -> None:
        """Write records until there are no more, or the caller hangs up."""
        try:
            _, request = await self._begin(pb.TailRequest, context)
            name = _name(request)
            async for seq, line in self._sink.tail(name, request.after_seq, follow=request.follow):
                await context.write(pb.TailResponse(seq=seq, record=line).SerializeToString())
        except (grpc.aio.InternalError, grpc.aio.UsageError) as gone:
            raise asyncio.CancelledError from gone  # it has hung up
        except Exception as error:  # noqa: BLE001 - what is wrong is for the caller
            await _refuse(context, error)

    async def heartbeat(self, peer: Peer, request: pb.HeartbeatRequest) -> Message:
        """Of the calling process."""
        beat = self._sink.beat(peer, request.resource)
        return pb.HeartbeatResponse(source=beat.source, every_s=beat.every_s, run_ids=beat.run_ids)

    async def end_run(self, peer: Peer, request: pb.EndRunRequest) -> Message:
        """Of one run, or of what the caller has under way."""
        status = _OUTCOMES.get(request.outcome)
        cause = request.cause[:_CAUSE_MAX] or _CAUSE
        ended = await self._sink.end(peer, _name(request), request.resource, status, cause)
        return pb.EndRunResponse(runs=map(_run, ended))

    async def status(self, _peer: Peer, request: pb.StatusRequest) -> Message:
        """Of the collector, or of one run."""
        if request.WhichOneof("run") is not None:
            return pb.StatusResponse(runs=[_run(await self._sink.run(_name(request)))])
        found = self._sink.collector()
        return pb.StatusResponse(
            version=found.version,
            pid=found.pid,
            started_at=found.started_at,
            root=found.root,
            runs=map(_run, found.runs),
            json=found.report,
        )

    async def _begin(self, kind: type[_Request], context: _Context) -> tuple[Peer, _Request]:
        peer = await self._sink.admit(self._peer_of(context))
        message: object = await context.read()
        if not isinstance(message, bytes):
            raise Rejected("bad_frame", "a call has one message")
        try:
            return peer, kind.FromString(message)
        except DecodeError as error:
            raise Rejected("bad_frame", f"the message is no {kind.DESCRIPTOR.name}") from error


def _name(request: pb.EndRunRequest | pb.StatusRequest | pb.TailRequest) -> RunName:
    named = request.WhichOneof("run")
    return RunName(
        request.run_id if named == "run_id" else None, request.session_id if named == "session_id" else None
    )


def _run(info: RunInfo) -> pb.Run:
    return pb.Run(
        run_id=info.run_id,
        session_id=info.session_id,
        status=info.status,
        attempt=info.attempt,
        last_seq=info.last_seq,
        dir=info.folder,
        sources=info.sources,
        cause=info.cause,
    )


_CODES: Final[dict[type[AgentrundError], grpc.StatusCode]] = {
    NoSuchRun: grpc.StatusCode.NOT_FOUND,
    UsageError: grpc.StatusCode.FAILED_PRECONDITION,
    Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Damaged: grpc.StatusCode.DATA_LOSS,
}


async def _refuse(context: _Context, error: Exception) -> NoReturn:
    code, message = _verdict(error)
    if code is grpc.StatusCode.INTERNAL:
        _log.error("a call from %s failed: a bug of ours", context.peer(), exc_info=error)
    try:
        await context.abort(code, message)
    except (grpc.aio.InternalError, grpc.aio.UsageError) as gone:
        # Its connection broke meanwhile: there is nobody to tell.
        raise asyncio.CancelledError from gone


def _verdict(error: Exception) -> tuple[grpc.StatusCode, str]:
    if isinstance(error, FileNotFoundError):
        return grpc.StatusCode.NOT_FOUND, "the files of the run are gone"
    if isinstance(error, OSError):
        return grpc.StatusCode.UNAVAILABLE, f"the system refuses: {error.strerror or error}; try again"
    if not isinstance(error, AgentrundError):
        return grpc.StatusCode.INTERNAL, "internal error; see the collector's log"
    code = _CODES.get(type(error), grpc.StatusCode.UNAVAILABLE)
    if isinstance(error, Rejected):
        denied = error.code == "not_allowed"
        code = grpc.StatusCode.PERMISSION_DENIED if denied else grpc.StatusCode.INVALID_ARGUMENT
    return code, f"{error.message}: {error.hint}" if error.hint else error.message
