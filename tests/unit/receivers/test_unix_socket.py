"""The Unix-socket door by itself: who waits, who is hung up on, and what a peer that reads nothing costs."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest

from agentrund.receivers import unix_socket
from agentrund.receivers.budget import Budget
from agentrund.receivers.unix_socket import UnixSocketDoor

LINE = b'{"type":"log"}\n'
LONG = 1 << 20


class Session:
    """Counts frames, and answers each with ``answer``."""

    def __init__(self, sink: Sink, connection) -> None:
        self.sink = sink
        self.connection = connection
        self.frames = 0
        sink.sessions.append(self)

    def frame(self, _frame) -> None:
        self.frames += 1
        self.connection.send(self.sink.answer)

    def refused(self, _error) -> None:
        pass

    def commit(self) -> None:
        pass

    def ack(self) -> bytes | None:
        return None

    def closed(self, *, clean: bool) -> None:
        self.sink.closed.append(clean)


class Sink:
    """Takes every connection."""

    max_line_bytes = LONG

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.closed: list[bool] = []
        self.answer = b""

    def has_room(self) -> bool:
        return True

    def connect(self, _peer, connection) -> Session:
        return Session(self, connection)


class Place:
    """A door on a socket of its own, within a running loop."""

    def __init__(self, path: Path, budget: int = 8 * LONG) -> None:
        self.path = str(path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen(64)
        self.sink = Sink()
        self.budget = Budget(budget)
        self.door = UnixSocketDoor(listener, self.sink, self.budget)

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.connect(self.path)
        client.setblocking(False)
        return client


async def rest() -> None:
    """Until the loop has done all it can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def send(client: socket.socket, data: bytes) -> None:
    await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(client, data), 10)


def sending(client: socket.socket, data: bytes) -> asyncio.Task[None]:
    return asyncio.ensure_future(send(client, data))


def test_who_sends_no_whole_line_is_hung_up_on_and_who_did_may_be_silent(tmp_path, monkeypatch):
    async def run() -> None:
        place = Place(tmp_path / "s")
        spoke, mute, trickle, late = (place.connect() for _ in range(4))
        await send(spoke, LINE)
        await send(trickle, b'{"ty')
        await rest()
        place.door.sweep()
        assert len(place.door.connections) == 4
        monkeypatch.setattr(unix_socket, "MUTE_S", 0.0)
        await send(late, LINE)  # lies in the socket, unread
        place.door.sweep()
        assert len(place.door.connections) == 2
        assert place.door.hung_up == 2
        assert [s.frames for s in place.sink.sessions] == [1, 0, 0, 1]
        for client in (mute, trickle):
            assert json.loads(client.recv(4096))["code"] == "overloaded"
        place.door.sweep()
        assert len(place.door.connections) == 2
        for client in (spoke, mute, trickle, late):
            client.close()
        place.door.close()
        assert place.budget.used == 0

    asyncio.run(run())


def test_long_lines_come_in_as_far_as_there_is_room(tmp_path):
    async def run() -> None:
        place = Place(tmp_path / "s", 4 * LONG)
        clients = [place.connect() for _ in range(5)]
        line = b'{"type":"log","payload":{"text":"' + b"x" * (LONG // 2) + b'"}}'
        sends = [sending(client, line) for client in clients]
        await rest()
        assert place.budget.waiting >= 3
        assert place.budget.used <= 4 * LONG + 4 * unix_socket.READ_BYTES
        ends = [asyncio.ensure_future(_end(one, client)) for one, client in zip(sends, clients, strict=True)]
        await asyncio.wait_for(asyncio.gather(*ends), 10)
        await rest()
        assert [s.frames for s in place.sink.sessions] == [1] * 5
        assert (place.budget.used, place.budget.waiting) == (0, 0)
        for client in clients:
            client.close()
        place.door.close()

    async def _end(sent: asyncio.Task[None], client: socket.socket) -> None:
        await sent
        await send(client, b"\n")

    asyncio.run(run())


def test_a_long_line_that_stops_makes_room_where_others_wait(tmp_path, monkeypatch):
    async def run() -> None:
        place = Place(tmp_path / "s", 2 * LONG)
        stuck, other = place.connect(), place.connect()
        await send(stuck, b"x" * (LONG // 4))
        await rest()
        monkeypatch.setattr(unix_socket, "STALL_S", 0.0)
        place.door.sweep()
        assert place.door.hung_up == 0, "nobody waits for it yet"
        await send(other, LINE)
        await rest()
        assert place.sink.sessions[1].frames == 1, "short lines are always taken"
        long = sending(other, b"x" * (LONG // 4) + b"\n" + LINE)
        await rest()
        assert place.budget.waiting == 1
        place.door.sweep()
        assert place.door.hung_up == 1
        assert place.sink.closed == [False]
        await long
        await rest()
        assert place.sink.sessions[1].frames == 2
        for client in (stuck, other):
            client.close()
        place.door.close()
        assert place.budget.used == 0

    asyncio.run(run())


@pytest.mark.parametrize(("answer", "count"), [(b"a" * 99 + b"\n", 30_000), (b"a" * 99_999 + b"\n", 300)])
def test_a_peer_that_reads_no_answers_is_asked_for_no_more(tmp_path, answer, count):
    async def run() -> None:
        place = Place(tmp_path / "s")
        place.sink.answer = answer
        client = place.connect()
        flood = sending(client, LINE * count)
        await rest()
        [session] = place.sink.sessions
        taken = session.frames
        assert taken < count
        held = unix_socket.READ_BYTES // len(LINE) * unix_socket.LINE_COST
        assert place.budget.used <= unix_socket.UNSENT_MAX + len(answer) + held
        await rest()
        assert session.frames == taken
        loop = asyncio.get_running_loop()
        while session.frames < count:
            assert await asyncio.wait_for(loop.sock_recv(client, 1 << 20), 10)
        await flood
        client.close()
        place.door.close()

    asyncio.run(run())


def test_what_the_dead_have_sent_is_taken_and_their_answers_cost_little(tmp_path):
    async def run() -> None:
        place = Place(tmp_path / "s")
        place.sink.answer = b"a" * 99_999 + b"\n"
        client = place.connect()
        await send(client, LINE * 1000)
        await rest()
        [session] = place.sink.sessions
        session.connection.drain()
        assert session.frames == 1000
        assert place.budget.used <= unix_socket.UNSENT_LOST + 2 * len(place.sink.answer)
        client.close()
        place.door.close()

    asyncio.run(run())
