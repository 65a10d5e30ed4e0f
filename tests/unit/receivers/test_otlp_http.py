"""The HTTP door as an ASGI application: verdicts to statuses, and what it does to slow and fleeing senders."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest
from google.rpc import status_pb2

from agentrund.model.errors import Overloaded, Rejected, Unavailable
from agentrund.model.otlp import Encoding, Signal
from agentrund.receivers import otlp_http
from agentrund.receivers.otlp_http import OtlpHttpApp
from agentrund.receivers.sink import Receipt, Taken
from support.otlp_sink import Sink

PROTOBUF, JSON = "application/x-protobuf", "application/json"
GONE = {"type": "http.disconnect"}


def part(body: bytes, *, more: bool = False) -> dict:
    return {"type": "http.request", "body": body, "more_body": more}


class Caller:
    """One request to an app: ``parts`` come one after the other, then nothing, as from a slow sender."""

    def __init__(self, *parts: dict, kind: str = PROTOBUF, path: str = "/v1/traces", **headers: str) -> None:
        self.parts = list(parts) or [part(b"body")]
        said = {"content-type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
        pairs = [(name.encode(), value.encode()) for name, value in said.items()]
        self.scope = {"path": path, "method": "POST", "headers": pairs, "client": ("127.0.0.1", 5555)}
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""

    async def receive(self) -> dict:
        if not self.parts:
            await asyncio.Event().wait()
        return self.parts.pop(0)

    async def send(self, message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message["body"]

    async def call(self, app: OtlpHttpApp) -> Caller:
        await app(self.scope, self.receive, self.send)
        return self


def app_on(sink: Sink, **options) -> OtlpHttpApp:
    return OtlpHttpApp(sink, 4318, **{"receive_bytes": 1000, "bearer": None, **options})


def run(use) -> None:
    asyncio.run(asyncio.wait_for(use(), 20))


@pytest.mark.parametrize(("kind", "encoding"), [(PROTOBUF, Encoding.PROTOBUF), (JSON, Encoding.JSON)])
@pytest.mark.parametrize("signal", list(Signal))
def test_bodies_reach_the_sink_as_they_were_before_compression(kind, encoding, signal):
    async def use():
        sink = Sink()
        packed = gzip.compress(b"hello")
        caller = Caller(
            part(packed[:3], more=True),
            part(packed[3:]),
            kind=kind,
            path=f"/v1/{signal}",
            content_encoding="GZIP",
        )
        caller.scope["headers"] += [(b"x-agentrund-run-id", b"mine"), (b"user-agent", b"OTel/1")]
        assert (await caller.call(app_on(sink))).status == 200
        [(*taken, peer)] = sink.taken
        assert taken == [signal, encoding, b"hello"]
        assert (peer.host, peer.port, peer.our_port, peer.run_id) == ("127.0.0.1", 5555, 4318, "mine")
        assert peer.client == "OTel/1"
        assert caller.body == (b"{}" if kind == JSON else b"")
        assert sink.budget.used == 0

    run(use)


@pytest.mark.parametrize(
    ("verdict", "status", "code", "retry"),
    [
        (Rejected("bad_otlp", "no request"), 400, 3, None),
        (Overloaded("busy", retry_s=2.2), 503, 14, "3"),
        (Unavailable("disk full"), 503, 14, "5"),
        (ZeroDivisionError("ours"), 503, 14, "5"),
    ],
)
@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_verdicts_become_statuses(verdict, status, code, retry, kind):
    async def use():
        sink = Sink()
        sink.verdict = verdict
        caller = await Caller(kind=kind).call(app_on(sink))
        assert (caller.status, caller.headers.get("retry-after")) == (status, retry)
        said = json.loads(caller.body) if kind == JSON else status_pb2.Status.FromString(caller.body)
        found = (said["code"], said["message"]) if kind == JSON else (said.code, said.message)
        assert found == (code, getattr(verdict, "message", "internal error; see the collector's log"))
        assert sink.budget.used == 0

    run(use)


@pytest.mark.parametrize(
    ("signal", "name"),
    [
        (Signal.TRACES, "rejectedSpans"),
        (Signal.LOGS, "rejectedLogRecords"),
        (Signal.METRICS, "rejectedDataPoints"),
    ],
)
def test_items_that_could_not_be_read_are_counted(signal, name):
    async def use():
        sink = Sink()
        sink.receipt = Receipt(Taken.STORED, 2, "no id")
        caller = await Caller(kind=JSON, path=f"/v1/{signal}").call(app_on(sink))
        assert json.loads(caller.body) == {"partialSuccess": {name: "2", "errorMessage": "no id"}}

    run(use)


@pytest.mark.parametrize(
    "parts",
    [
        [part(b"x" * 1001)],
        [part(b"x" * 600, more=True), part(b"x" * 600, more=True)],
        [part(gzip.compress(b"x" * 1001))],
    ],
)
def test_what_is_too_large_is_refused_and_counted(parts):
    async def use():
        sink = Sink()
        coding = {"content_encoding": "gzip"} if parts[0]["body"][:1] == b"\x1f" else {}
        caller = await Caller(*parts, **coding).call(app_on(sink))
        assert (caller.status, caller.headers.get("retry-after")) == (413, None)
        assert (len(sink.rejected), sink.taken, sink.budget.used) == (1, [], 0)

    run(use)


def test_a_length_that_is_too_large_is_refused_before_anything_is_read():
    async def use():
        caller = Caller(content_length="1001")
        await caller.call(app_on(Sink()))
        assert (caller.status, len(caller.parts)) == (413, 1)

    run(use)


def test_a_sender_that_hangs_up_gets_no_answer_and_leaves_no_claim():
    async def use():
        sink = Sink()
        caller = await Caller(part(b"half", more=True), GONE).call(app_on(sink))
        assert (caller.status, sink.taken, sink.budget.used) == (0, [], 0)

    run(use)


def test_a_body_that_does_not_come_to_its_end_makes_room_for_those_that_wait(monkeypatch):
    monkeypatch.setattr(otlp_http, "READ_S", 0.01)

    async def use():
        sink = Sink()
        app = app_on(sink)
        caller = Caller(part(b"half", more=True))
        waiting = asyncio.ensure_future(caller.call(app))
        await asyncio.wait((waiting,), timeout=0.1)
        assert not waiting.done(), "nobody waits for its room"
        sink.makes_room = True
        await waiting
        assert (caller.status, sink.budget.used) == (503, 0)

    run(use)


def test_a_store_that_has_begun_is_never_cut_in_half():
    async def use():
        sink = Sink()
        sink.gate = asyncio.Event()
        app = app_on(sink)
        call = asyncio.ensure_future(Caller(part(b"kept")).call(app))
        await sink.begun.wait()
        call.cancel()
        settled = asyncio.ensure_future(app.settled())
        await asyncio.sleep(0)
        assert not settled.done()
        sink.gate.set()
        await settled
        assert [body for _, _, body, _ in sink.taken] == [b"kept"]

    run(use)


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_a_request_that_a_stop_cuts_off_is_worth_sending_again(kind):
    async def use():
        sink = Sink()
        sink.room.clear()
        caller = Caller(kind=kind)
        call = asyncio.ensure_future(caller.call(app_on(sink)))
        await asyncio.sleep(0)
        call.cancel()
        await call
        assert (caller.status, caller.headers["retry-after"]) == (503, "1")

    run(use)


def test_of_those_that_wait_outside_only_so_many_are_held():
    async def use():
        sink = Sink()
        sink.room.clear()
        app = app_on(sink)
        waiting = [asyncio.ensure_future(Caller().call(app)) for _ in range(otlp_http.WAITING_LEAST)]
        await asyncio.sleep(0)
        assert (await Caller().call(app)).status == 503
        sink.room.set()
        assert {caller.status for caller in await asyncio.gather(*waiting)} == {200}

    run(use)
