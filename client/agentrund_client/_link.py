"""One source's way to the collector: what is sent at once, waits, goes into the spool, is sent again.

Three places a line can be in, always in order of `n`, each one a prefix of the next:

- **connected**: in the kernel's socket buffer, kept in `_buffer` until it is acked;
- **connected, but the collector is busy**: pending in `_buffer`, up to its bounds, then counted as lost;
- **no collector**: in the spool file, and nowhere else.

When a collector appears, the spool file is sent first while new lines still go to its end; once the end is
reached lines go to the socket directly again, and the file is removed when its last line is acked. After a
reconnect sending starts at the collector's `acked` + 1; what it gets twice it drops by `n`.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from collections.abc import Callable

from agentrund_client._backoff import Backoff
from agentrund_client._buffer import CONTROL, EVENT, Buffer
from agentrund_client._channel import Channel
from agentrund_client._discover import socket_path
from agentrund_client._guard import note_fault, notice
from agentrund_client._heartbeat import Heartbeat
from agentrund_client._loop import Loop, the_loop
from agentrund_client._spool import Spool
from agentrund_client._spool_folder import open_spool
from agentrund_client._turnstile import Turnstile
from agentrund_client._waiters import Waiter, Waiters
from agentrund_client._wire import Frame, encode_frame, fitting, number

LINE_BYTES = 64 << 20  # the protocol's default, until `welcome` says otherwise

# Acks only free memory, so they are read at most this often (seconds): a wake-up costs as much as ten events.
_ACK_PAUSE = 0.05
# How much one turn does before it lets the agent's threads have the lock again.
_ACKS_A_TURN, _LINES_A_TURN, _CHUNKS_A_TURN = 2000, 256, 4
# A listener whose queue is full is there, only busy; after so many attempts the spool is safer.
_BUSY_ATTEMPTS = 5


class Link:
    """The link of one source. Every change of state runs through `_locked`; `turn` is called by the loop."""

    def __init__(self, hello: Frame, on_welcome: Callable[[Frame], None]) -> None:
        self.hello = hello
        self.n = 0
        self.acked = 0
        self.welcome: Frame | None = None
        self.guards: deque[Frame] = deque(maxlen=100)
        self.refusals: deque[Frame] = deque(maxlen=100)
        self.max_line = LINE_BYTES
        self._on_welcome = on_welcome
        self._welcomed = threading.Event()
        self._locked = Turnstile()
        self._buffer = Buffer.with_limits()
        self._waiters = Waiters()
        self._loop: Loop | None = None
        self._channel: Channel | None = None
        self._spool: Spool | None = None
        self._spooling = False  # new lines go into the spool
        self._greeted = False  # `welcome` has come on this connection
        self._ready = False  # lines may be sent directly
        self._blocked = False  # the kernel's buffer is full: wait for POLLOUT
        self._broken: OSError | None = None  # sending failed: read what is left, then close
        self._more_acks = False
        self._ending = False  # the run is over: close once everything is settled
        self._left_behind = False  # a spool file was closed with lines in it
        self._refused = False  # the collector will never have us
        self._attempts_busy = 0
        self._retry = Backoff(hello["source"])
        self._heartbeat = Heartbeat()
        self._quiet_until = 0.0

    # What the agent's threads call

    def start(self) -> None:
        """Say hello now; without it the first line does."""
        self._locked(self._begin)

    def put(self, body: bytes, *, must: bool = False) -> None:
        """Take one event, encoded by `encode`: it is in the kernel then, buffered, or counted as lost.

        `must` lines (the run's end) are taken beyond the bounds.
        """
        self._locked(self._accept, body, must)

    def flush(self, timeout: float) -> bool:
        """True once everything is on the collector's stable storage; False at the timeout or without one."""
        waiter = Waiter(self.n)
        self._locked(self._ask_flush, waiter)
        return self._wait(waiter, timeout)

    def wait_welcome(self, timeout: float) -> bool:
        """Wait for the collector's answer to hello, but only where one is to be expected."""
        loop = self._loop  # the loop's thread may take it away at any moment
        if self.welcome is None and self._channel is not None and loop is not None:
            loop.wait(self._welcomed, timeout)
        return self.welcome is not None

    def end(self) -> None:
        """The run is over: let the connection go once everything is settled. A late event opens it again."""
        self._ending = True
        self._wake()

    def leave(self, timeout: float) -> None:
        """The process ends: wait for the last ack at most so long, then leave the rest in the spool."""
        waiter = Waiter(self.n)
        self._locked(self._ask_ack, waiter)
        self._wait(waiter, timeout)
        self._locked(self._part)

    def abandon(self) -> None:
        """Close the parent's descriptors in a forked child. No lock: a thread of the parent may hold it."""
        try:
            if self._channel is not None:
                self._channel.close()
            if self._spool is not None:
                self._spool.close()
        except OSError:  # closed already
            return

    # What the loop calls

    def interest(self) -> tuple[int, int] | None:
        """Acks are read with pauses, except while somebody waits for one."""
        channel = self._channel
        if channel is None or channel.fileno() < 0:
            return None
        mask = select.POLLOUT if self._blocked else 0
        if self._eager or time.monotonic() >= self._quiet_until:
            mask |= select.POLLIN
        return channel.fileno(), mask

    def due(self) -> float | None:
        """The next moment something is to be done without an event."""
        if self._ending and self._may_retire:
            return 0.0
        if self._channel is None:
            return None if self._refused else self._retry.at
        if self._broken or self._more_acks or (self._ready and not self._blocked and self._buffer.next()):
            return 0.0
        if self._spooling and self._greeted and not self._blocked:
            return 0.0
        quiet = self._quiet_until if time.monotonic() < self._quiet_until else None
        return min((at for at in (self._heartbeat.at, quiet) if at is not None), default=None)

    def turn(self, events: int) -> None:
        """Read, write, reconnect: whatever is ready."""
        self._locked(self._turn, events)

    def _wait(self, waiter: Waiter, timeout: float) -> bool:
        loop = self._loop
        if loop is not None and not waiter.event.is_set():
            loop.wake()
            loop.wait(waiter.event, timeout)
        self._locked(self._waiters.forget, waiter)
        return waiter.ok

    # Taking lines

    def _begin(self) -> None:
        if self._loop is not None:
            return
        self._loop = the_loop()
        if self._left_behind:
            self._to_spool()  # what an earlier end left in the spool comes before anything new
        if not self._connect():
            self._to_spool()
        self._loop.add(self)

    def _accept(self, body: bytes, must: bool) -> None:  # noqa: FBT001 - an argument of _locked
        # Counted before anything can fail: a number that never arrives is a loss the collector can see.
        n = self.n = self.n + 1
        if self._loop is None:
            self._begin()
        line = number(n, body)
        buffer = self._buffer
        if self._spooling and self._spool is not None:
            self._spool.append(n, line, must=must)
        elif not must and not buffer.admits(line):
            buffer.drop(n)
        elif self._ready and not buffer.pending and self._send(line):
            if buffer.sent(n, line):
                self._wake()
        else:
            buffer.wait(n, line)
            if not self._blocked:
                self._wake()

    def _send(self, data: bytes) -> bool:
        """False when nothing was taken. A part that was taken counts as sent: the channel keeps the rest."""
        channel = self._channel
        if channel is None:
            return False
        try:
            channel.send(data)
        except BlockingIOError:
            self._block()
            return False
        except OSError as fault:
            self._broken, self._ready = fault, False
            self._wake()
            return False
        if channel.tail:
            self._block()
        return True

    def _block(self) -> None:
        if not self._blocked:
            self._blocked = True
            self._wake()

    def _wake(self) -> None:
        loop = self._loop
        if loop is not None:
            loop.wake()

    @property
    def unsettled(self) -> bool:
        """Whether there is anything that is not acked, or a connection."""
        return self._loop is not None

    @property
    def _settled(self) -> bool:
        return not len(self._buffer) and self._spool is None

    @property
    def _eager(self) -> bool:
        """Whether somebody or something waits for what the collector says."""
        buffer = self._buffer
        waiting = self._waiters or self._blocked or buffer.pending or buffer.half_full
        return bool(waiting) or not self._greeted or self._ending or self._spool is not None

    # Connecting

    def _connect(self) -> bool:
        """One attempt; False when nobody is there (or has been too busy for too long)."""
        path = socket_path()
        try:
            if path is None:
                raise ConnectionRefusedError
            channel = Channel(path)
        except BlockingIOError:
            self._attempts_busy += 1
            self._retry.fail()
            return self._attempts_busy < _BUSY_ATTEMPTS
        except OSError:
            self._retry.fail()
            return False
        self._channel, self._attempts_busy = channel, 0
        self._greeted, self._blocked, self._broken = False, False, None
        self._retry.fail()  # for the case that it closes again before it says welcome
        if not self._send(encode_frame(self.hello)):
            self._disconnect(None)
            return False
        # Nothing to send again: events may follow right behind hello.
        self._ready = self._settled
        return True

    def _disconnect(self, fault: OSError | None) -> None:
        if self._channel is not None:
            self._channel.close(fault)
        if self._greeted:
            self._retry.reset()
        self._channel, self._broken = None, None
        self._ready = self._greeted = self._blocked = False
        self._heartbeat.ask(0.0)
        self._buffer.requeue()
        if self._spool is not None:
            self._to_spool()

    def _reconnect(self) -> None:
        if not self._connect():
            self._to_spool()
            self._waiters.fail_acks()
            if self.welcome is None:
                self._waiters.fail()

    # The spool

    def _to_spool(self) -> None:
        """Move everything unsettled into the spool file; new lines follow there."""
        if self._spooling:
            return
        try:
            spool = open_spool(self.hello, self._spool, self.acked)
        except (OSError, ValueError) as fault:
            notice("spool", f"no collector, and no spool ({fault}): events are kept in memory only")
            return
        for n, line, kind in self._buffer.take():
            spool.append(n, line, must=kind > EVENT)
        self._spool, self._spooling = spool, True

    def _feed(self, spool: Spool) -> None:
        """Send the spool file from where it was read to; at its end lines go directly again."""
        for _ in range(_CHUNKS_A_TURN):
            chunk = spool.peek()
            if not chunk:
                self._spooling, self._ready = False, True
                self._drop_settled_spool()
                self._queue_flush(*self._waiters.flush_ids)
                return
            if not self._send(fitting(chunk, self.max_line)):
                return
            spool.advance(len(chunk))
            if self._blocked:
                return

    def _drop_settled_spool(self) -> None:
        if self._spool is not None and not self._spooling and self.acked >= self._spool.last_n:
            self._spool.remove()
            self._spool = None

    # Turns of the loop

    def _turn(self, events: int) -> None:
        if self._loop is None:
            return
        if self._channel is None:
            if not self._refused and time.monotonic() >= self._retry.at:
                self._reconnect()
        else:
            self._turn_connected(events)
        if self._more_acks:
            self._more_acks = self._buffer.ack(self.acked, _ACKS_A_TURN)
        if self._ending:
            self._retire()

    def _turn_connected(self, events: int) -> None:
        if events & ~select.POLLOUT or self._broken:
            self._read()
        if self._channel is not None and events & select.POLLOUT:
            self._unblock(self._channel)
        if self._channel is not None and not self._blocked:
            if self._spooling and self._greeted and self._spool is not None:
                self._feed(self._spool)
            elif self._ready:
                self._send_pending()
        if self._heartbeat.take() and not self._blocked:
            self._send(encode_frame({"op": "heartbeat"}))

    def _unblock(self, channel: Channel) -> None:
        try:
            channel.send_tail()
        except BlockingIOError:
            return
        except OSError as fault:
            self._disconnect(fault)
            return
        self._blocked = False

    def _send_pending(self) -> None:
        for _ in range(_LINES_A_TURN):
            entry = self._buffer.next()
            if entry is None or self._blocked:
                return
            if len(entry[1]) > self.max_line:
                self._buffer.give_up()
            elif self._send(entry[1]):
                self._buffer.start()
            else:
                return

    def _retire(self) -> None:
        """After the run's end nothing is kept open for it. A spool file is left to whoever hands it in."""
        if self._may_retire:
            self._part()

    @property
    def _may_retire(self) -> bool:
        return not self._waiters and (self._settled or (self._spooling and self._channel is None))

    def _part(self) -> None:
        if self._loop is None:
            return
        if self._channel is not None and not self._settled:
            self._read()
        self._buffer.requeue()
        if len(self._buffer):
            self._to_spool()
        if self._channel is not None:
            self._channel.close()
        self._left_behind = self._spool is not None
        if self._spool is not None:
            self._spool.close()
        self._channel = self._spool = None
        self._spooling = self._ready = False
        self._loop.remove(self)
        self._loop = None
        self._waiters.fail()

    # What the collector says

    def _read(self) -> None:
        channel, fault = self._channel, self._broken
        try:
            frames = channel.receive() if channel is not None else None
        except OSError as failure:
            frames, fault = None, failure
        for frame in frames or ():
            try:
                self._hear(frame)
            except (KeyError, TypeError, ValueError) as strange:
                note_fault(strange, "frame from the collector")
            if self._channel is not channel:
                return
        if frames is None or (self._broken and not frames):
            self._disconnect(fault)
        elif not self._eager:
            self._quiet_until = time.monotonic() + _ACK_PAUSE

    def _hear(self, frame: Frame) -> None:
        match frame.get("op"):
            case "ack":
                self._ack(frame["n"])
            case "welcome":
                self._hear_welcome(frame)
            case "flushed":
                self._ack(frame.get("n", 0))
                self._waiters.flushed(frame.get("id"))
            case "guard":
                self.guards.append(frame)
            case "error":
                self._hear_error(frame)

    def _hear_welcome(self, frame: Frame) -> None:
        self.welcome, self._greeted = frame, True
        self.hello["run_id"] = frame.get("run_id")
        self.max_line = int(frame.get("max_line_bytes") or LINE_BYTES)
        self._heartbeat.ask(float(frame.get("heartbeat_s") or 0))
        self._ack(frame.get("acked", 0))
        if self._spool is not None:
            self._spool.rewind(self.acked)
        elif not self._ready:
            self._ready = True
            self._queue_flush(*self._waiters.flush_ids)
        self._welcomed.set()
        self._on_welcome(frame)

    def _hear_error(self, frame: Frame) -> None:
        """Refused events are settled by acks; a refused hello decides about the connection."""
        self.refusals.append(frame)
        code = frame.get("code")
        if self._greeted and code != "unknown_run":
            return
        if code == "unknown_run" and self.hello.get("run_id") is not None:
            # A stale AGENTRUND_RUN_ID, or a run that was removed under us: this becomes a run of its own.
            self.hello["run_id"] = self.hello["parent"] = None
            self._disconnect(None)
            self._retry.reset()
        elif code in {"unknown_run", "unsupported_version", "not_allowed"}:
            notice("refused", f"the collector refused this process: {frame.get('message') or code}")
            self._refused = True
            self._disconnect(None)
            self._to_spool()
            self._waiters.fail()
        elif code == "overloaded":
            self._disconnect(None)

    def _ack(self, n: int) -> None:
        if n > self.acked:
            self.acked = min(n, self.n)
            self._more_acks = self._buffer.ack(self.acked, _ACKS_A_TURN)
            self._drop_settled_spool()
            self._waiters.acked(self.acked)

    def _ask_ack(self, waiter: Waiter) -> None:
        if self._channel is None or self.acked >= waiter.n:
            waiter.settle(ok=self.acked >= waiter.n)
        else:
            self._waiters.add_ack(waiter)

    def _ask_flush(self, waiter: Waiter) -> None:
        self._begin()
        flush_id = self._waiters.add_flush(waiter)
        if self._refused:
            self._waiters.fail()
        elif self._ready:
            self._queue_flush(flush_id)
        elif self._channel is None:
            # One look whether somebody has come meanwhile; where not, that settles the waiter.
            self._retry.at = 0.0

    def _queue_flush(self, *flush_ids: int) -> None:
        for flush_id in flush_ids:
            self._buffer.wait(self.n, encode_frame({"op": "flush", "id": flush_id}), CONTROL)
        self._send_pending()
