"""What goes wrong with a call of the control service: its caller is told, in words, and is told no more than that."""

from __future__ import annotations

import asyncio
import errno
import logging

import grpc
import grpc.aio
import pytest

from agentrund.model.errors import NoSuchRun
from agentrund.model.otlp import Peer
from agentrund.receivers import control_grpc
from agentrund.v1 import control_pb2 as pb
from agentrund.v1.control_pb2_grpc import ControlStub

WAIT_S = 20
FULL = OSError(errno.EMFILE, "Too many open files")
BUG = ValueError("secret")
TOLD = [
    (FULL, "UNAVAILABLE", "the system refuses: Too many open files; try again"),
    (BUG, "INTERNAL", "internal error; see the collector's log"),
    (NoSuchRun("no run of x in this root"), "NOT_FOUND", "no run of x in this root"),
]


class Failing:
    """A sink of which every word fails, a tail after one record."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def admit(self, peer: Peer) -> Peer:
        return peer

    async def run(self, _name) -> None:
        raise self._error

    async def tail(self, _name, _after, *, follow):
        yield 1, b"{}"
        raise self._error


def calls(error: Exception, story) -> None:
    async def whole():
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((control_grpc.handler(Failing(error), lambda _: Peer(None, None)),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                await story(ControlStub(channel))
        finally:
            await server.stop(0)

    asyncio.run(whole())


@pytest.mark.parametrize(("error", "code", "details"), TOLD)
def test_a_call_that_fails(error, code, details, caplog):
    async def story(stub):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Status(pb.StatusRequest(run_id="x"), timeout=WAIT_S)
        assert (refused.value.code().name, refused.value.details()) == (code, details)

    calls(error, story)
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert bool(logged) is (error is BUG)


@pytest.mark.parametrize(("error", "code", "details"), TOLD)
def test_a_tail_that_fails_has_told_what_came_before(error, code, details):
    async def story(stub):
        call = stub.Tail(pb.TailRequest(run_id="x"), timeout=WAIT_S)
        assert (await call.read()).seq == 1
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert (refused.value.code().name, refused.value.details()) == (code, details)

    calls(error, story)
