"""The Unix-socket door: newline-delimited JSON in both directions.

Raw non-blocking sockets on the loop's readers, not transports: a transport that fails to write an
acknowledgement to a dead peer closes itself and drops what the peer had still sent (measured: 60-75 %
of the events lost), and a death must be able to read the socket to its end before it is judged.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from typing import Final

import orjson

from agentrund.model.errors import Rejected, Unavailable
from agentrund.model.event import Json
from agentrund.receivers.decode.jsonl import decode
from agentrund.receivers.line_splitter import TOO_LONG, LineSplitter
from agentrund.receivers.peer import peer_of
from agentrund.receivers.stream_sink import StreamSession, StreamSink

log: Final = logging.getLogger(__name__)

READ_BYTES: Final = 1 << 18
"""One read, one write, one acknowledgement; small enough that no sender holds the loop."""
LINES_A_TURN: Final = 2000
"""Lines of one sender between two looks at the others: about 50 ms of the smallest events."""
UNSENT_MAX: Final = 1 << 20
"""Replies kept for a peer that does not read; beyond, nothing more is read from it."""
ACCEPT_BATCH: Final = 64
ACCEPT_PAUSE_S: Final = 0.5
"""Between two looks whether there is room for another connection."""
DRAIN_READS: Final = 4096
"""Of a dead peer: far more than any socket holds, but a living heir of the socket cannot keep us here."""
STOP_READS: Final = 4
"""At a stop: a socket holds less than that, and what a busy sender goes on to write is not waited for."""
_SEND: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class UnixSocketDoor:
    """Accepts connections of a bound, listening socket and gives their frames to ``sink``."""

    def __init__(self, listener: socket.socket, sink: StreamSink) -> None:
        self._listener = listener
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self._paused: asyncio.TimerHandle | None = None
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

    def drain(self) -> None:
        """Accept no more, and read what has been sent."""
        self.stop_accepting()
        if self._paused is not None:
            self._paused.cancel()
            self._paused = None
        for connection in list(self.connections):
            connection.drain(STOP_READS)

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
        self._read_on()

    @property
    def stalled(self) -> bool:
        """Whether reading waits for storage."""
        return self._stalled

    @property
    def busy(self) -> bool:
        """Whether lines that were read are still to be taken."""
        return self._stalled or self._taking

    # -- in ---------------------------------------------------------------------------------------

    def _read_on(self) -> None:
        if (
            self._open
            and not self._reading
            and not self._stalled
            and not self._held
            and len(self._unsent) <= UNSENT_MAX
        ):
            self._loop.add_reader(self._sock.fileno(), self._on_readable)
            self._reading = True

    def _read_off(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._sock.fileno())
            self._reading = False

    def _on_readable(self) -> None:
        if not self._read_once():
            self._end()

    def _read_once(self) -> bool:
        """One read; False at the end of the stream."""
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            # Our unread acknowledgements make a peer's close look like a reset: a normal end.
            return False
        if not data:
            return False
        self._take(self._lines.feed(data))
        return True

    def drain(self, reads: int = DRAIN_READS) -> None:
        """Read until the socket would block or ends (at most ``reads`` times); close it if it ended."""
        if self._taking:
            return  # from inside a frame of this very connection: its other lines come first
        self._take([], len(self._held))
        for _ in range(reads):
            if not self._open or self._stalled:
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
            lines = self._lines.feed(data)
            self._take(lines, len(lines))

    def _take(self, lines: list[bytes | None], most: int = LINES_A_TURN) -> None:
        """Take lines, at most so many now; the rest follows when others have had their turn."""
        self._held.extend(lines)
        self._taking = True
        try:
            for _ in range(min(most, len(self._held))):
                self._take_line(self._held[0])
                self._held.popleft()
            self._commit()
        except Unavailable as error:
            self.stall(error)
            return
        finally:
            self._taking = False
        self._told_storage = False
        if self._held and self._open:
            self._read_off()
            self._loop.call_soon(self._take_rest)

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
        self._unsent += data
        if len(self._unsent) > UNSENT_MAX:
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
        self._read_on()
        if self._ack_due:
            self._ack_due = False
            self.acknowledge()

    # -- end --------------------------------------------------------------------------------------

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
        self._sock.close()
        self._door.left(self)
