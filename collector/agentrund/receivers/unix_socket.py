"""The Unix-socket door: newline-delimited JSON in both directions.

Raw non-blocking sockets on the loop's readers, not transports: a transport that fails to write an
acknowledgement to a dead peer closes itself and drops what the peer had still sent (measured: 60-75 %
of the events lost), and a death must be able to read the socket to its end before it is judged.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections import deque
from typing import Final

import orjson

from agentrund.model.errors import Rejected, Unavailable
from agentrund.model.event import Json
from agentrund.receivers.budget import Budget, Claim
from agentrund.receivers.decode.jsonl import decode
from agentrund.receivers.line_splitter import TOO_LONG, LineSplitter
from agentrund.receivers.peer import peer_of
from agentrund.receivers.stream_sink import StreamSession, StreamSink

log: Final = logging.getLogger(__name__)

READ_BYTES: Final = 1 << 18
"""One read, one write, one acknowledgement; small enough that no sender holds the loop."""
LINES_A_TURN: Final = 2000
"""Lines of one sender between two looks at the others,"""
TURN_S: Final = 0.02
"""and no more than fit into this, shared by all whose lines wait (gRPC takes one call a turn of the loop);
the time is looked at after so many."""
_LOOK_AFTER: Final = 16
UNSENT_MAX: Final = 1 << 16
"""Replies kept for a peer that does not read; beyond, nothing more is read from it, nor taken."""
UNSENT_LOST: Final = 1 << 20
"""Where lines are taken all the same (of the dead, at a stop), replies beyond this are left out."""
SMALL_LINE: Final = 1 << 16
"""A longer line is read on only when there is room for the longest that there may be."""
MUTE_S: Final = 60.0
"""A connection that has not sent one whole line by then is no client."""
LINE_COST: Final = 64
"""Bytes a short line takes that waits to be taken."""
TINY: Final = 1 << 12
"""Read at once, of a line that has hardly begun, while memory is short: short lines are always taken."""
STALL_S: Final = 10.0
"""A long line that has stopped coming makes room after this, where others wait."""
ACCEPT_BATCH: Final = 64
ACCEPT_PAUSE_S: Final = 0.5
"""Between two looks whether there is room for another connection."""
DRAIN_READS: Final = 4096
"""Of a dead peer: far more than any socket holds, but a living heir of the socket cannot keep us here."""
STOP_READS: Final = 4
"""At a stop: a socket holds less than that, and what a busy sender goes on to write is not waited for."""
STOP_S: Final = 2.0
"""For all together: what is not acknowledged by then is sent again."""
_SEND: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class UnixSocketDoor:
    """Accepts connections of a bound, listening socket and gives their frames to ``sink``."""

    def __init__(self, listener: socket.socket, sink: StreamSink, budget: Budget) -> None:
        self._listener = listener
        self._sink = sink
        self.budget = budget
        self._loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self._paused: asyncio.TimerHandle | None = None
        self.mute: dict[Connection, float] = {}
        """Connections that have sent no whole line yet, and since when, oldest first."""
        self.behind: set[Connection] = set()
        """Connections with lines that wait for their next turn."""
        self.hung_up = 0
        listener.setblocking(False)  # noqa: FBT003 - the socket API's own signature
        self._loop.add_reader(listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPT_BATCH):
            try:
                if not self._sink.has_room():
                    self._accept_later()
                    return
                sock, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # Taken from under us by another thread: what has no descriptor waits as what has no room.
                self._accept_later()
                return
            sock.setblocking(False)  # noqa: FBT003
            Connection(sock, self._sink, self)

    def _accept_later(self) -> None:
        """Let the loop breathe; the backlog keeps the clients."""
        self.stop_accepting()
        self._paused = self._loop.call_later(ACCEPT_PAUSE_S, self._accept_again)

    def left(self, connection: Connection) -> None:
        """A connection has closed: who waits may have its place."""
        self.connections.discard(connection)
        if self._paused is not None:
            self._paused.cancel()
            self._paused = self._loop.call_later(0, self._accept_again)

    def _accept_again(self) -> None:
        self._paused = None
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._accept)
            self._accept()

    def stop_accepting(self) -> None:
        """Leave new connections in the backlog."""
        self._loop.remove_reader(self._listener.fileno())

    def sweep(self) -> None:
        """Hang up on who only takes up room."""
        now = self._loop.time()
        for connection, since in list(self.mute.items()):
            if now < since + MUTE_S:
                break
            # It may have spoken while we did not listen.
            connection.drain(1)
            if connection in self.mute:
                self._hang_up(connection, f"no whole line in {MUTE_S:.0f} s")
        if self.budget.waiting:
            for connection in [c for c in self.connections if c.blocks(now)]:
                connection.drain(1)  # it may be we who are slow
                if connection.blocks(now):
                    self._hang_up(connection, "a long line did not come to its end; others wait for its room")

    def _hang_up(self, connection: Connection, why: str) -> None:
        self.hung_up += 1
        connection.hang_up(Rejected("overloaded", why))

    def drain(self) -> None:
        """Accept no more, and read what has been sent."""
        self.stop_accepting()
        if self._paused is not None:
            self._paused.cancel()
            self._paused = None
        until = self._loop.time() + STOP_S
        for connection in list(self.connections):
            if not connection.deaf and self._loop.time() < until:
                connection.drain(STOP_READS, until)

    def close(self) -> None:
        """Close every connection."""
        for connection in list(self.connections):
            connection.close()
        self._listener.close()


class Connection:
    """One client: lines in, frames to its session, replies out."""

    def __init__(self, sock: socket.socket, sink: StreamSink, door: UnixSocketDoor) -> None:
        self._sock = sock
        self._door = door
        self._loop = asyncio.get_running_loop()
        self._lines = LineSplitter(sink.max_line_bytes)
        self._limit = sink.max_line_bytes
        self._claim: Claim | None = None
        self._counted = 0
        self._read_at = self._loop.time()
        self._held: deque[bytes | None] = deque()
        self._unsent = bytearray()
        self._ack_due = False
        self._reading = False
        self._stalled = False
        self._told_storage = False
        self._taking = False
        self._open = True
        try:
            self._session: StreamSession = sink.connect(peer_of(sock), self)
        except Rejected as error:
            self._send_error(error)
            sock.close()
            self._open = False
            return
        door.connections.add(self)
        door.mute[self] = self._read_at
        self._read_on()

    @property
    def stalled(self) -> bool:
        """Whether reading waits for storage."""
        return self._stalled

    @property
    def busy(self) -> bool:
        """Whether lines that were read are still to be taken."""
        return self._stalled or self._taking

    @property
    def deaf(self) -> bool:
        """Whether the peer does not read its answers: it is asked for nothing more."""
        return len(self._unsent) > UNSENT_MAX

    # -- in ---------------------------------------------------------------------------------------

    def _read_on(self) -> None:
        if (
            self._open
            and not self._reading
            and not self._stalled
            and not self._held
            and not self.deaf
            and (self._claim is None or self._claim.granted)
        ):
            self._loop.add_reader(self._sock.fileno(), self._on_readable)
            self._reading = True

    def _read_off(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._sock.fileno())
            self._reading = False

    def _on_readable(self) -> None:
        if not self._has_room():
            self._read_off()
        elif not self._read_once():
            self._end()

    def _has_room(self) -> bool:
        """Whether to read on: of a long line all that it may be must fit."""
        budget = self._door.budget
        small = TINY if budget.full else SMALL_LINE
        if self._claim is None and self._lines.size > small:
            self._claim = budget.claim(2 * self._limit, self._on_room)  # as it comes, and as a whole
        return self._claim is None or self._claim.granted

    def _on_room(self) -> None:
        self._read_at = self._loop.time()  # it could not come before
        self._read_on()

    def _weigh(self) -> None:
        """Tell the budget what is held here; give back a claim that is not needed any more."""
        size = self._lines.size
        if self._claim is not None and size <= SMALL_LINE and not self._held:
            self._give_back()
        counted = len(self._unsent) + len(self._held) * LINE_COST + (size if self._claim is None else 0)
        self._door.budget.count(counted - self._counted)
        self._counted = counted

    def _give_back(self) -> None:
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.close()

    def _read_once(self) -> bool:
        """One read; False at the end of the stream."""
        try:
            data = self._sock.recv(TINY if self._claim is None and self._door.budget.full else READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            # Our unread acknowledgements make a peer's close look like a reset: a normal end.
            return False
        if not data:
            return False
        self._read_at = self._loop.time()
        self._take(self._lines.feed(data))
        return True

    def drain(self, reads: int = DRAIN_READS, until: float = math.inf) -> None:
        """Read until the socket would block or ends (at most ``reads`` times); close it if it ended.

        ``until`` is a time of the loop's clock.
        """
        if self._taking:
            return  # from inside a frame of this very connection: its other lines come first
        self._take([], whole=True)
        for _ in range(reads):
            if not self._open or self._stalled or self._loop.time() > until:
                return
            try:
                data = self._sock.recv(READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._end()
                return
            self._read_at = self._loop.time()
            self._take(self._lines.feed(data), whole=True)

    def _take(self, lines: list[bytes | None], *, whole: bool = False) -> None:
        """Take lines, so many at a time; the rest (not ``whole``) when others have had their turn."""
        self._held.extend(lines)
        if self._held:
            self._door.mute.pop(self, None)
        self._taking = True
        try:
            self._take_lines(len(self._held) if whole else min(LINES_A_TURN, len(self._held)), whole=whole)
            self._commit()
        except Unavailable as error:
            self.stall(error)
            return
        finally:
            self._taking = False
        self._told_storage = False
        if not self._open:
            return
        self._weigh()
        if not self._held:
            self._door.behind.discard(self)
            return
        self._read_off()
        if self.deaf:
            self._door.behind.discard(self)
        else:
            self._door.behind.add(self)
            self._loop.call_soon(self._take_rest)

    def _take_lines(self, count: int, *, whole: bool) -> None:
        until = self._loop.time() + TURN_S / (len(self._door.behind) or 1)
        for n in range(1, count + 1):
            if not whole and (self.deaf or (n % _LOOK_AFTER == 0 and self._loop.time() > until)):
                return
            self._take_line(self._held[0])
            self._held.popleft()

    def _commit(self) -> None:
        while True:
            try:
                self._session.commit()
            except Rejected as refusal:
                self._send_error(refusal)  # and on with the other runs this read has brought something for
            else:
                return

    def _take_rest(self) -> None:
        if not self._open or self._stalled:
            return
        self._take([])
        if not self._held:
            self._read_on()

    def _take_line(self, line: bytes | None) -> None:
        try:
            if line is not TOO_LONG:
                self._session.frame(decode(line))
                return
            refusal = Rejected("line_too_long", f"a line may have {self._limit} bytes; it was skipped")
        except Rejected as error:
            refusal = error
        except Unavailable:
            raise
        except Exception:
            # One line that meets a bug of ours must not take its connection, and its neighbours, with it.
            log.exception("a line was not taken: a bug of ours")
            refusal = Rejected("bad_frame", "internal error; the collector's log has it")
        self._session.refused(refusal)
        self._send_error(refusal)

    def stall(self, error: Unavailable) -> None:
        """Storage fails: tell the sender once, acknowledge nothing, and read no more until it is back."""
        if not self._open:
            return
        self._stalled = True
        self._read_off()
        if not self._told_storage:
            self._told_storage = True
            self._send_error(Rejected("storage", error.message))

    def resume(self) -> None:
        """Take what was held, acknowledge what is stored, read on."""
        if not self._stalled or not self._open:
            return
        self._stalled = False
        self._take_rest()

    # -- out --------------------------------------------------------------------------------------

    def _send_error(self, error: Rejected) -> None:
        frame: Json = {"op": "error", "code": error.code, "message": error.message}
        if error.n is not None:
            frame["n"] = error.n
        self.send(orjson.dumps(frame) + b"\n")

    def acknowledge(self) -> None:
        """Send the acknowledgement that is due, now or after what waits before it."""
        if self._unsent:
            self._ack_due = True
            return
        ack = self._session.ack()
        if ack is not None:
            self.send(ack)

    def send(self, data: bytes) -> None:
        """Send now what the socket takes; the rest when it is writable. A dead peer is no error here."""
        if not self._open:
            return
        if not self._unsent:
            try:
                sent = self._sock.send(data, _SEND)
            except BlockingIOError:
                sent = 0
            except OSError:
                return
            if sent == len(data):
                return
            data = data[sent:]
            self._loop.add_writer(self._sock.fileno(), self._on_writable)
        elif len(self._unsent) > UNSENT_LOST:
            return
        self._unsent += data
        if self.deaf:
            self._read_off()

    def _on_writable(self) -> None:
        try:
            sent = self._sock.send(self._unsent, _SEND)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._unsent)
        del self._unsent[:sent]
        if self._unsent:
            return
        self._loop.remove_writer(self._sock.fileno())
        self._take_rest()
        if self._ack_due:
            self._ack_due = False
            self.acknowledge()

    # -- end --------------------------------------------------------------------------------------

    def blocks(self, now: float) -> bool:
        """Whether it holds room that others wait for, for a line that does not come."""
        return self._claim is not None and self._claim.granted and now > self._read_at + STALL_S

    def hang_up(self, reason: Rejected) -> None:
        """Close the connection from our side; what it had begun is lost, and it is told so."""
        self._send_error(reason)
        self._end()

    def _end(self) -> None:
        clean = not self._lines.partial
        self.close()
        self._session.closed(clean=clean)

    def close(self) -> None:
        """Close the socket without a word to the session."""
        if not self._open:
            return
        self._open = False
        self._read_off()
        self._loop.remove_writer(self._sock.fileno())
        self._door.mute.pop(self, None)
        self._door.behind.discard(self)
        self._give_back()
        self._door.budget.count(-self._counted)
        self._sock.close()
        self._door.left(self)
