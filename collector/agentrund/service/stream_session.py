"""One connection's conversation with the collector: hello, events, control frames, ends.

Which run a frame lands in is decided by ``Runs``, who is alive by ``Lives``; this file only speaks
the protocol.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from agentrund.formats.trace_jsonl import dump_payload
from agentrund.model.errors import Rejected, RunUnusable, Unavailable
from agentrund.model.event import Json
from agentrund.model.source import Arrival, Identity
from agentrund.receivers.decode.jsonl import (
    MAX_INTEGER,
    PROTOCOL_VERSION,
    Control,
    EventFrame,
    Frame,
    Hello,
    HelloRefused,
)
from agentrund.receivers.stream_sink import StreamConnection
from agentrund.service.access import Access
from agentrund.service.process_watch import describe
from agentrund.service.run_actor import RunActor

if TYPE_CHECKING:
    from agentrund.service.stream_service import StreamService


SEATS_KEPT: Final = 256
"""Places of a sender without hello; beyond, those in ended runs are given up."""


@dataclass(slots=True)
class Seat:
    """A source's place in a run, as one connection uses it."""

    source: str
    run_id: str
    orphan: bool = False
    """Of a dead process, handed in by another: it ends with the connection."""
    ends_with_connection: bool = False
    """An implicit seat in a run of its own: the close of the connection is its run.end."""


class Session:
    """The state of one connection. ``peer`` is its process, ``pidfd`` the kernel's handle on it, if any."""

    def __init__(
        self, service: StreamService, connection: StreamConnection, peer: Identity, pidfd: int | None
    ) -> None:
        self._service = service
        self.connection = connection
        self.peer = peer
        self.pidfd = pidfd
        self.began: float | None = None
        """When the source's story began, where that was before it could tell it (spool files)."""
        self._seat: Seat | None = None
        self._implicit: dict[str, Seat] = {}
        self._refused_hello = False
        self._touched: dict[str, RunActor] = {}
        self._unnumbered: Counter[tuple[str, str]] = Counter()
        self._spoke = False
        self._owed = 0
        self._due: tuple[int, int] | None = None
        self._control: Mapping[str, Callable[[Json], None]] = {
            "heartbeat": self._heartbeat,
            "flush": self._flush,
            "lost": self._lost,
            "bye": self._bye,
            "status": self._status,
            "do": self._do,
        }

    def take_pidfd(self) -> int | None:
        """The kernel's handle on the peer, for whoever watches it first; the taker closes it."""
        pidfd, self.pidfd = self.pidfd, None
        return pidfd

    def seats(self) -> list[Seat]:
        """The places of the sources that speak through this connection."""
        return [*self._implicit.values(), *([] if self._seat is None else [self._seat])]

    # -- frames -----------------------------------------------------------------------------------

    def frame(self, frame: Frame) -> None:
        """Take one frame. Raises Rejected or Unavailable."""
        self._spoke = True
        try:
            if isinstance(frame, EventFrame):
                self._event(frame)
            elif isinstance(frame, Hello):
                self._hello(frame)
            else:
                self._take_control(frame)
        except RunUnusable as error:
            raise self._run_lost(error) from error
        except Unavailable as error:
            self._service.runs.trouble.refused("what came over the socket", error)
            raise

    def _event(self, frame: EventFrame) -> None:
        seat = self._seat or self._implicit_seat(frame)
        actor = self._actor(seat, frame.event.n)
        actor.feed(seat.source, frame.event)
        n = frame.event.n
        if n is not None and n <= self._owed:
            self._owed = n - 1  # sent again: its acknowledgement was lost, so it is due once more

    def _hello(self, hello: Hello) -> None:
        self._refused_hello = True
        if self._seat is not None and self._seat.source != hello.source:
            self._leave_seat()
        self._seat = None
        seat, actor = self._service.hello(self, hello)
        self._refused_hello = False
        self._seat = seat
        source = actor.state.sources[seat.source]
        attempt = next(a for a in actor.state.attempts if a.n == source.attempt)
        self._owed, self._due = source.high_water, None
        welcome = {
            "op": "welcome",
            "v": PROTOCOL_VERSION,
            "run_id": seat.run_id,
            "dir": self._service.run_dir(seat.run_id),
            "role": "owner" if attempt.owner == seat.source else "member",
            "attempt": attempt.n,
            "resume_seq": attempt.resume_seq,
            "acked": source.high_water,
            "heartbeat_s": self._service.lives.heartbeat_s(seat.source),
            "max_line_bytes": self._service.max_line_bytes,
        }
        self._service.runs.syncing.when_kept(
            actor.files.unsynced, partial(self.reply, welcome), partial(self._not_kept, actor)
        )

    def _leave_seat(self, cause: str = "process exited") -> None:
        """The connection speaks for this source no more; an orphan has nothing else to wait for."""
        seat, self._seat = self._seat, None
        if seat is None:
            return
        self._service.unseat(self, seat)
        if seat.orphan:
            self._service.lives.gone(seat.run_id, seat.source, cause)

    def _take_control(self, control: Control) -> None:
        handler = self._control.get(control.op)
        if handler is None:
            raise Rejected("unknown_op", f"unknown op {control.op[:64]!r}")
        handler(control.args)

    # -- senders without hello --------------------------------------------------------------------

    def _implicit_seat(self, frame: EventFrame) -> Seat:
        """A place for an event whose sender has not said hello."""
        if self._refused_hello:
            raise Rejected("bad_frame", "hello was refused; say hello first", n=frame.event.n)
        key = f"r{frame.run_id}" if frame.run_id is not None else f"s{frame.session_id or ''}"
        seat = self._implicit.get(key)
        if seat is None:
            who = Arrival(
                self._service.next_source_id(self.peer),
                self.peer,
                session_id=frame.session_id or None,
                metadata={} if self.peer.pid is None else describe(self.peer.pid),
            )
            seat = self._service.seat(self, who, frame.run_id or None)
            seat.ends_with_connection = not frame.run_id and not frame.session_id
            self._implicit[key] = seat
            if len(self._implicit) > SEATS_KEPT:
                self._leave_ended()
        return seat

    def _leave_ended(self) -> None:
        """Give up the places in runs that have ended: one connection may tell of thousands."""
        for key, seat in list(self._implicit.items())[:-1]:
            actor = self._service.runs.resident(seat.run_id)
            if seat.run_id not in self._touched and (actor is None or not actor.state.is_open):
                del self._implicit[key]
                self._service.unseat(self, seat)

    # -- control frames ---------------------------------------------------------------------------

    def _hello_seat(self) -> Seat:
        if self._seat is None:
            raise Rejected("bad_frame", "say hello first")
        return self._seat

    def _heartbeat(self, _args: Json) -> None:
        self._hello_seat()  # every frame is a sign of life; see commit

    def _lost(self, args: Json) -> None:
        seat = self._hello_seat()
        first, last = _counter(args.get("from")), _counter(args.get("to"))
        if first is None or last is None or last < first:
            raise Rejected("bad_frame", "lost needs integers from 1, from <= to")
        self._actor(seat).lost(seat.source, last)

    def _bye(self, _args: Json) -> None:
        seat = self._hello_seat()
        self._service.leave(seat, "bye")

    def _flush(self, args: Json) -> None:
        seat, number = self._hello_seat(), args.get("id")
        self.commit()
        actor = self._actor(seat)
        n = actor.state.sources[seat.source].high_water
        flushed = {"op": "flushed", "id": number, "n": n}
        self._service.runs.syncing.flush(
            actor.files.unsynced, partial(self.reply, flushed), self._storage_failed
        )

    def _storage_failed(self, message: str) -> None:
        self.reply({"op": "error", "code": "storage", "message": message})

    def _status(self, _args: Json) -> None:
        self.commit()  # what it tells is in the files
        self.reply({"op": "status", **self._service.status()})

    def _do(self, args: Json) -> None:
        if not Access.owns(self.peer.uid):
            raise Rejected("not_allowed", "a member of the group may send and read, not have work done")
        self._service.requests.take(self, args)

    # -- the end of a read, and of the connection -------------------------------------------------

    def refused(self, error: Rejected) -> None:
        """Leave a mark of a refusal in the run, where there is one."""
        if isinstance(error, HelloRefused):
            self._leave_seat()
            self._refused_hello = True
        seat = self._seat or next(iter(self._implicit.values()), None)
        if seat is not None and error.code != "unknown_op":
            self._mark(seat, error)

    def _mark(self, seat: Seat, error: Rejected) -> None:
        """A refusal with a number is settled at once; others are told once a read, with their count."""
        if error.n is None:
            self._unnumbered[error.code, error.message] += 1
            return
        try:
            self._actor(seat).refuse(seat.source, error.code, error.message, error.n)
        except Rejected:
            return  # its run is gone: there is nothing to mark

    def _mark_unnumbered(self) -> None:
        refusals, self._unnumbered = self._unnumbered, Counter()
        seat = self._seat or next(iter(self._implicit.values()), None)
        for (code, message), count in refusals.items():
            if seat is None:
                return
            text = message if count == 1 else f"{message} ({count} frames)"
            try:
                self._actor(seat).refuse(seat.source, code, text, None)
            except Rejected:
                return

    def _actor(self, seat: Seat, n: int | None = None) -> RunActor:
        """The run of a seat. Raises Rejected where it is gone: its sender has to say hello again."""
        try:
            actor = self._service.runs.actor(seat.run_id)
        except RunUnusable as error:
            if seat is self._seat:
                self._leave_seat()
                self._refused_hello = True
            self._implicit = {key: other for key, other in self._implicit.items() if other is not seat}
            raise Rejected("unknown_run", error.message, n=n) from error
        self._touched[seat.run_id] = actor
        return actor

    def _run_lost(self, error: RunUnusable) -> Rejected:
        """A run was lost under us: who sat in it says hello again, and sends what was not acknowledged."""
        is_lost = self._service.runs.is_lost
        if self._seat is not None and is_lost(self._seat.run_id):
            self._leave_seat()
            self._refused_hello = True
        self._implicit = {key: seat for key, seat in self._implicit.items() if not is_lost(seat.run_id)}
        self._touched = {run_id: actor for run_id, actor in self._touched.items() if not is_lost(run_id)}
        return Rejected("unknown_run", error.message)

    def commit(self) -> None:
        """Store what this read brought. Raises Unavailable, and Rejected where a run was lost."""
        if self._unnumbered:
            self._mark_unnumbered()
        if self._spoke and self._seat is not None:
            self._service.heard(self._seat)
        self._spoke = False
        try:
            for actor in self._touched.values():
                self._service.runs.commit(actor)
        except RunUnusable as error:
            raise self._run_lost(error) from error
        self._touched.clear()
        self._owe_ack()

    def _owe_ack(self) -> None:
        """The cumulative acknowledgement of the one source that speaks here, where it has moved."""
        seat = self._seat
        if seat is None and len(self._implicit) == 1:
            seat = next(iter(self._implicit.values()))
        actor = None if seat is None else self._service.runs.resident(seat.run_id)
        if seat is None or actor is None:
            return
        state = actor.state
        n = state.sources[seat.source].high_water
        if n > self._owed:
            self._owed = n
            self._service.runs.syncing.when_kept(
                actor.files.unsynced,
                partial(self._kept, self._seat, n, state.last_seq),
                partial(self._not_kept, actor),
            )

    def _kept(self, seat: Seat | None, n: int, seq: int) -> None:
        if seat is self._seat:  # else another source speaks here by now
            self._due = (n, seq)
            self.connection.acknowledge()

    def _not_kept(self, actor: RunActor, reason: str) -> None:
        self._touched[actor.run_id] = actor  # what comes next waits for it
        self.connection.stall(Unavailable(reason))

    def ack(self) -> bytes | None:
        """The acknowledgement that is due."""
        due, self._due = self._due, None
        return None if due is None else b'{"op":"ack","n":%d,"seq":%d}\n' % due

    async def kept(self) -> None:
        """Wait until what came for the source that said hello may be acknowledged. Raises Unavailable."""
        actor = None if self._seat is None else self._service.runs.resident(self._seat.run_id)
        if actor is not None:
            await self._service.runs.syncing.kept(actor.files.unsynced)

    def reply(self, frame: Json) -> None:
        """Send one frame."""
        self.connection.send(dump_payload(frame) + b"\n")

    def writer_is_dead(self, cause: str) -> None:
        """Everything a dead source has left behind has been taken: it ends here, unless it had ended."""
        self._leave_seat(cause)
        self._service.disconnected(self)

    def closed(self, *, clean: bool) -> None:
        """The connection is gone. A source that said hello lives on with its process."""
        if clean:
            for seat in self._implicit.values():
                self._service.implicit_end(seat)
        if self._seat is not None and self._seat.orphan:
            self._leave_seat()
        self._service.disconnected(self)


def _counter(value: object) -> int | None:
    """A sender's counter, None where it is none."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_INTEGER:
        return value
    return None
