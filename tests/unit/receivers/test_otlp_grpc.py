from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from agentrund.model.errors import Overloaded, Rejected, Unavailable
from agentrund.model.otlp import Encoding, Signal
from agentrund.receivers import otlp_grpc
from agentrund.receivers.bearer import Bearer
from agentrund.receivers.otlp_grpc import OtlpGrpcServer, parse_peer
from support import http2
from support.otlp_sink import Sink

PATH = "/opentelemetry.proto.collector.{0}.v1.{1}Service/Export"


def serving(use: Callable[[Sink, OtlpGrpcServer, int], Awaitable[None]], **options: Any) -> Sink:
    """Run ``use`` against a door on a free port."""
    sink = Sink()

    async def run() -> None:
        server = OtlpGrpcServer(sink, **options)
        port = await server.start("127.0.0.1:0")
        try:
            await use(sink, server, port)
        finally:
            await server.stop(0)

    asyncio.run(run())
    return sink


async def call(port: int, body: bytes, service: str = "trace", name: str = "Trace", metadata=None) -> bytes:
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{port}", options=[("grpc.max_send_message_length", -1)]
    ) as channel:
        return await channel.unary_unary(PATH.format(service, name))(body, metadata=metadata)


def test_bodies_of_all_signals_reach_the_sink_as_they_were_sent():
    async def use(sink, server, port):
        for service, name in (("trace", "Trace"), ("logs", "Logs"), ("metrics", "Metrics")):
            answer = await call(port, name.encode(), service, name, (("x-agentrund-run-id", "r-1"),))
            assert not ExportTraceServiceResponse.FromString(answer).HasField("partial_success")

    taken = serving(use).taken
    assert [(s, e, b) for s, e, b, _ in taken] == [
        (Signal.TRACES, Encoding.PROTOBUF, b"Trace"),
        (Signal.LOGS, Encoding.PROTOBUF, b"Logs"),
        (Signal.METRICS, Encoding.PROTOBUF, b"Metrics"),
    ]
    assert {(p.host, p.run_id) for *_, p in taken} == {("127.0.0.1", "r-1")}
    assert all(p.port for *_, p in taken)


def test_the_real_exporter_is_served():
    async def use(sink, server, port):
        def program() -> None:
            exporter = OTLPSpanExporter(endpoint=f"127.0.0.1:{port}", insecure=True)
            provider = TracerProvider(resource=Resource({"service.name": "t"}), shutdown_on_exit=False)
            provider.add_span_processor(SimpleSpanProcessor(exporter))
            provider.get_tracer("test").start_span("work").end()
            provider.shutdown()

        await asyncio.to_thread(program)

    (signal, _, body, _), *rest = serving(use).taken
    assert (signal, rest) == (Signal.TRACES, [])
    request = ExportTraceServiceRequest.FromString(body)
    assert request.resource_spans[0].scope_spans[0].spans[0].name == "work"


def test_a_batch_above_grpcs_own_limit_is_taken():
    body = b"x" * 5_000_000

    async def use(sink, server, port):
        await call(port, body)

    assert serving(use).taken[0][2] == body


def test_a_body_above_our_limit_is_resource_exhausted():
    async def use(sink, server, port):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(port, b"x" * 2000)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    sink = serving(use, receive_bytes=1000)
    assert sink.taken == []
    assert len(sink.rejected) == 1, "what gRPC refuses leaves a mark of ours"
    assert sink.budget.used == 0


@pytest.mark.parametrize(
    ("verdict", "code", "retry_s"),
    [
        (Rejected("bad_otlp", "not a request"), grpc.StatusCode.INVALID_ARGUMENT, None),
        (Overloaded("too much", retry_s=2.5), grpc.StatusCode.UNAVAILABLE, 2.5),
        (Unavailable("disk full"), grpc.StatusCode.UNAVAILABLE, 5.0),
        (ZeroDivisionError("ours"), grpc.StatusCode.UNAVAILABLE, 5.0),
    ],
)
def test_verdicts_become_statuses(verdict, code, retry_s):
    async def use(sink, server, port):
        sink.verdict = verdict
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(port, b"x")
        error = caught.value
        assert error.code() is code
        assert "Traceback" not in error.details()
        trailing = dict(error.trailing_metadata())
        message = getattr(verdict, "message", "internal error; see the collector's log")
        assert error.details() == message
        status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
        assert (status.code, status.message) == (code.value[0], message)
        if retry_s is None:
            assert "google.rpc.retryinfo-bin" not in trailing
        else:
            info = error_details_pb2.RetryInfo.FromString(trailing["google.rpc.retryinfo-bin"])
            assert info.retry_delay.ToNanoseconds() == retry_s * 1e9

    serving(use)


def test_a_caller_that_gives_up_does_not_cut_a_store_in_half():
    async def use(sink, server, port):
        sink.gate = asyncio.Event()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            pending = channel.unary_unary(PATH.format("trace", "Trace"))(b"kept")
            await sink.begun.wait()
            pending.cancel()
        stopping = asyncio.ensure_future(server.stop(0))
        sink.gate.set()
        await stopping
        assert [body for _, _, body, _ in sink.taken] == [b"kept"]

    serving(use)


@pytest.mark.parametrize(
    "error", [grpc.aio.UsageError("RPC already finished"), grpc.aio.InternalError("batch")]
)
def test_a_refusal_that_reaches_nobody_is_no_fault_of_ours(error, caplog):
    class Context:
        """As gRPC's, of a call whose connection has broken."""

        async def read(self):
            return grpc.aio.EOF

        async def abort(self, *_):
            raise error

        def peer(self):
            return "ipv4:127.0.0.1:1"

        def invocation_metadata(self):
            return None

        def time_remaining(self):
            return None

    async def use():
        with pytest.raises(asyncio.CancelledError):
            await OtlpGrpcServer(Sink())._export(Signal.TRACES, Context())

    asyncio.run(use())
    assert caplog.text == ""


def test_a_port_in_use_is_named():
    async def use(sink, server, port):
        with pytest.raises(Unavailable, match=f"127.0.0.1:{port}"):
            await OtlpGrpcServer(sink).start(f"127.0.0.1:{port}")

    serving(use)


TOKEN = "s3cret-s3cret-s3cret"


@pytest.fixture
def bearer():
    return Bearer(TOKEN, time.monotonic)


def authorization(value: str):
    return (("authorization", value),)


@pytest.mark.parametrize("value", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER  {TOKEN}"])
def test_a_call_with_the_token_is_taken(value, bearer):
    async def use(sink, server, port):
        await call(port, b"x", metadata=authorization(value))
        assert bearer.refused == 0

    assert len(serving(use, bearer=bearer).taken) == 1


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        (),
        (("x-authorization", f"Bearer {TOKEN}"),),
        *map(
            authorization,
            ["", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"],
        ),
    ],
)
@pytest.mark.parametrize(("service", "name"), [("trace", "Trace"), ("logs", "Logs"), ("metrics", "Metrics")])
def test_a_call_without_the_token_is_refused(metadata, service, name, bearer):
    async def use(sink, server, port):
        for count in (1, 2):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(port, b"x", service, name, metadata)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert TOKEN not in caught.value.details()
            assert bearer.refused == count

    assert serving(use, bearer=bearer).taken == []


def test_nothing_of_a_body_is_read_without_the_token(bearer):
    async def use(sink, server, port):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(port, b"x" * 2000)
        # Read, it would be found too large.
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    serving(use, bearer=bearer, receive_bytes=1000)


def test_tokens_are_compared_in_constant_time(monkeypatch, bearer):
    compared = []

    def compare(one, other):
        compared.append((one, other))
        return False

    monkeypatch.setattr(hmac, "compare_digest", compare)

    async def use(sink, server, port):
        with pytest.raises(grpc.aio.AioRpcError):
            await call(port, b"x", metadata=authorization(f"Bearer {TOKEN}"))

    serving(use, bearer=bearer)
    assert compared == [(TOKEN.encode(), TOKEN.encode())]


def test_refusals_are_logged_once_in_a_while(caplog, bearer):
    async def use(sink, server, port):
        for _ in range(5):
            with pytest.raises(grpc.aio.AioRpcError):
                await call(port, b"x")
        assert bearer.refused == 5

    serving(use, bearer=bearer)
    [told] = [record.getMessage() for record in caplog.records if "token" in record.getMessage()]
    assert "127.0.0.1" in told
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(
    ("peer", "parsed"),
    [
        ("ipv4:127.0.0.1:5555", ("127.0.0.1", 5555)),
        ("ipv6:[::1]:5555", ("::1", 5555)),
        ("ipv6:%5B::1%5D:5555", ("::1", 5555)),
        ("ipv6:[fe80::1%25eth0]:1", ("fe80::1%eth0", 1)),
        ("unix:/run/x.sock", (None, None)),
        ("unix:", (None, None)),
        ("ipv4:127.0.0.1", (None, None)),
        ("", (None, None)),
    ],
)
def test_peers_are_read(peer, parsed):
    assert parse_peer(peer) == parsed


def test_who_answers_no_ping_is_given_up_and_who_is_only_silent_is_not(monkeypatch):
    monkeypatch.setattr(otlp_grpc, "PING_EVERY_S", 0.2)
    monkeypatch.setattr(otlp_grpc, "PING_ANSWER_S", 1.0)

    async def use(sink, server, port):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            export = channel.unary_unary(PATH.format("trace", "Trace"))
            await export(b"before")
            reader, gone = await asyncio.open_connection("127.0.0.1", port)
            gone.write(http2.GREETING)
            await asyncio.wait_for(reader.read(), 20)
            gone.close()
            await export(b"after")

    before, after = serving(use).taken
    assert before[3].port == after[3].port, "the same connection"
