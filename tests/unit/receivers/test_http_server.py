"""The HTTP listener: what it does to connections that waste its time, and at a stop."""

from __future__ import annotations

import asyncio

import pytest

from agentrund.model.errors import Unavailable
from agentrund.receivers import http_server
from agentrund.receivers.http_server import HttpServer, listen

REQUEST = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n"


class App:
    """Answers 200, once ``gate`` is open where it has one."""

    def __init__(self) -> None:
        self.gate: asyncio.Event | None = None
        self.begun = asyncio.Event()
        self.reads = True
        self.at_cancel = 200
        self.sent_away: list[str] = []

    def refuse_http2(self, peer):
        self.sent_away.append(peer)
        return "the wrong port"

    async def __call__(self, scope, receive, send):
        self.begun.set()
        while self.reads and (await receive()).get("more_body"):
            pass
        status = 200
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            status = self.at_cancel
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


def serving(use):
    """Run ``use(app, server, connect)`` against a listener on a free port."""

    async def run() -> None:
        app = App()
        listening = listen("127.0.0.1", 0)
        port = listening.getsockname()[1]
        server = HttpServer(app, listening, None, app.refuse_http2)
        await server.start()
        writers = []

        async def connect():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
            return reader, writer

        try:
            await asyncio.wait_for(use(app, server, connect), 20)
        finally:
            await server.stop(0)
            for writer in writers:
                writer.close()

    asyncio.run(run())


@pytest.mark.parametrize("sent", [b"", b"POST /x HT", REQUEST + b"12345" + b"GET"])
def test_a_head_that_is_late_is_hung_up_on(sent, monkeypatch):
    monkeypatch.setattr(http_server, "HEAD_S", 0.05)

    async def use(app, server, connect):
        reader, writer = await connect()
        writer.write(sent)
        answer = await reader.read()
        assert answer == b"" or answer.startswith(b"HTTP/1.1 200")

    serving(use)


def test_a_connection_that_rests_between_two_requests_is_kept(monkeypatch):
    monkeypatch.setattr(http_server, "HEAD_S", 0.05)

    async def use(app, server, connect):
        reader, writer = await connect()
        for _ in range(3):
            writer.write(REQUEST + b"12345")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            late, other = await connect()
            assert await late.read() == b"", "the time of a head has passed"
            other.close()

    serving(use)


def test_a_slow_body_is_not_a_late_head(monkeypatch):
    monkeypatch.setattr(http_server, "HEAD_S", 0.05)

    async def use(app, server, connect):
        reader, writer = await connect()
        writer.write(REQUEST + b"123")
        late, _ = await connect()
        assert await late.read() == b"", "the time of a head has passed"
        writer.write(b"45")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")

    serving(use)


def test_who_sends_on_after_the_answer_is_hung_up_on(monkeypatch):
    monkeypatch.setattr(http_server, "LINGER_S", 0.05)

    async def use(app, server, connect):
        app.reads = False
        reader, writer = await connect()
        writer.write(REQUEST + b"12")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")

    serving(use)


def test_a_request_under_way_at_a_stop_is_answered():
    async def use(app, server, connect):
        app.gate = asyncio.Event()
        reader, writer = await connect()
        writer.write(REQUEST + b"12345")
        await app.begun.wait()
        stopping = asyncio.ensure_future(server.stop(10))
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await connect()
        app.gate.set()
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        await stopping

    serving(use)


def test_a_request_that_lasts_longer_than_a_stop_hears_what_the_application_says_to_that(caplog):
    async def use(app, server, connect):
        app.gate = asyncio.Event()
        app.at_cancel = 503
        reader, writer = await connect()
        writer.write(REQUEST + b"12345")
        await app.begun.wait()
        await server.stop(0.01)
        assert (await reader.read()).startswith(b"HTTP/1.1 503")

    serving(use)
    assert caplog.text == ""


def test_who_speaks_http_2_is_told_in_words_and_sent_away():
    async def use(app, server, connect):
        reader, writer = await connect()
        host, port = writer.get_extra_info("sockname")
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.endswith(b"\r\n\r\nthe wrong port\n")
        assert app.sent_away == [f"{host}:{port}"]
        assert not app.begun.is_set()

    serving(use)


def test_the_same_words_later_on_a_connection_are_an_ordinary_mistake():
    async def use(app, server, connect):
        reader, writer = await connect()
        writer.write(REQUEST + b"12345")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        assert app.sent_away == []

    serving(use)


def test_an_address_that_cannot_be_had_is_named():
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=f"127.0.0.1:{port}"):
            listen("127.0.0.1", port)
    with pytest.raises(Unavailable, match="no-such-host"):
        listen("no-such-host.invalid", 1)
