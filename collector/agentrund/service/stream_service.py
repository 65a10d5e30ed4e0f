"""The stream protocol's server side: connections, and the places of their sources in runs."""

from __future__ import annotations

from collections.abc import Callable

from agentrund.model.errors import Busy, Rejected
from agentrund.model.event import Event, Json
from agentrund.model.source import Arrival, Identity
from agentrund.receivers.decode.jsonl import Hello
from agentrund.receivers.peer import Peer
from agentrund.receivers.stream_sink import StreamConnection
from agentrund.sequencer.run import EARLIEST
from agentrund.service.access import Access
from agentrund.service.config import Settings
from agentrund.service.lives import Lives, close_fd
from agentrund.service.process_watch import ProcessWatch, start_time
from agentrund.service.rarely import Rarely
from agentrund.service.requests import Requests
from agentrund.service.run_actor import RunActor
from agentrund.service.runs import Runs
from agentrund.service.stream_session import Seat, Session
from agentrund.store import descriptors


class StreamService:
    """Everything behind the Unix-socket door."""

    def __init__(
        self,
        settings: Settings,
        runs: Runs,
        watch: ProcessWatch,
        status: Callable[[], Json],
    ) -> None:
        self.runs = runs
        self.access = Access.of(settings.group)
        self.max_line_bytes = settings.max_line_bytes
        self.status = status
        self.is_behind: Callable[[str | None], bool] = lambda _session: False
        """Whether what came before in a session waits to be taken in (spool files)."""
        self.lives = Lives(settings, runs, watch, self)
        self.requests = Requests(runs)
        self._sessions: dict[str, set[Session]] = {}
        self._connected: set[Session] = set()
        self._crowded = Rarely("new connections wait", runs.clock.monotonic)
        self._implicit = 0
        runs.on_ended = self.lives.run_over
        runs.in_use = lambda actor: any(source in self._sessions for source in actor.state.sources)

    # -- connections ------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether enough descriptors are left for another connection."""
        if descriptors.room_for_newcomers():
            return True
        self._crowded.warn(f"{len(self._connected)} are connected, no more descriptors may be used")
        return False

    def connect(self, peer: Peer, connection: StreamConnection) -> Session:
        """A process has connected. Raises Rejected for one that is neither ours nor the group's."""
        if not self.access.admits(peer):
            close_fd(peer.pidfd)
            raise Rejected("not_allowed", f"uid {peer.uid} may not write here")
        try:
            start = None if peer.pid is None else start_time(peer.pid)
        except OSError as error:
            # Who it is must be known before anything is taken from it: it comes again.
            close_fd(peer.pidfd)
            raise Rejected("overloaded", f"cannot look at your process now: {error.strerror}") from error
        identity = Identity(peer.pid, start, None if peer.pid is None else self.lives.boot_id, peer.uid)
        session = Session(self, connection, identity, peer.pidfd)
        self._connected.add(session)
        return session

    def disconnected(self, session: Session) -> None:
        """A connection is gone; its sources live on with their processes."""
        self._connected.discard(session)
        for seat in session.seats():
            self.unseat(session, seat)
        close_fd(session.take_pidfd())

    # -- places ------------------------------------------------------------------------------------

    def hello(self, session: Session, hello: Hello) -> tuple[Seat, RunActor]:
        """Give a source that introduces itself its seat. Raises Rejected or Unavailable."""
        if not hello.orphan and self.is_behind(hello.session_id):
            raise Busy(
                "what its session left behind is being taken in first",
                hint="wait; nothing has to be sent again",
            )
        identity = session.peer
        if identity.pid is None or hello.orphan:
            origin = None if hello.pid is None else "client"
            identity = Identity(hello.pid, None, None, identity.uid, pid_from=origin)
        now = self.runs.clock.now()
        began = session.began if hello.ts is None else hello.ts
        who = Arrival(
            hello.source,
            identity,
            session_id=hello.session_id,
            metadata=dict(hello.metadata),
            ts=began if began is not None and EARLIEST <= began <= now else None,
        )
        parent = None if hello.parent is None else hello.parent.partition("/")[0]
        seat = self.seat(session, who, hello.run_id, parent, orphan=hello.orphan)
        return seat, self.runs.actor(seat.run_id)

    def seat(
        self,
        session: Session,
        who: Arrival,
        run_id: str | None,
        parent: str | None = None,
        *,
        orphan: bool = False,
    ) -> Seat:
        """A place for a source, by the protocol's rules; it is watched from here on, unless it is dead."""
        target = self.runs.target(who.source, run_id, who.session_id, parent)
        if target is not None:
            self.lives.look_at_exits(target)
            self._take_over(session, who, target)
        actor = self.runs.place(who, target)
        self.lives.stays(actor.run_id)
        self._sessions.setdefault(who.source, set()).add(session)
        state = actor.state.sources[who.source]
        if state.left is None and actor.state.is_open and not orphan:
            self.lives.watch(state, session.take_pidfd())
        return Seat(who.source, actor.run_id, orphan=orphan)

    def _take_over(self, session: Session, who: Arrival, run_id: str) -> None:
        """A source that is in use: its own process may connect anew, another only after its death."""
        actor = self.runs.resident(run_id)
        known = None if actor is None else actor.state.sources.get(who.source)
        if known is None:
            return
        same = known.identity.pid == who.identity.pid and known.identity.pid_start == who.identity.pid_start
        if not same and self.lives.alive(known):
            raise Rejected("not_allowed", f"source {who.source} belongs to pid {known.identity.pid}")
        for other in list(self._sessions.get(who.source, ())):
            if other is not session:
                other.connection.drain()
                other.connection.close()
                self.disconnected(other)

    def unseat(self, session: Session, seat: Seat) -> None:
        """A source does not speak through this connection any more."""
        sessions = self._sessions.get(seat.source)
        if sessions is not None:
            sessions.discard(session)
            if not sessions:
                del self._sessions[seat.source]
        self.runs.release(seat.run_id)

    def heard(self, seat: Seat) -> None:
        """A sign of life of a source."""
        self.lives.heard(seat.source)
        actor = self.runs.resident(seat.run_id)
        if actor is not None:
            actor.heard()

    def leave(self, seat: Seat, cause: str) -> None:
        """A source says it leaves."""
        actor = self.runs.resident(seat.run_id)
        if actor is None:
            return
        actor.leave(seat.source, cause)
        self.lives.has_left(seat.source)
        self.runs.commit(actor)

    def implicit_end(self, seat: Seat) -> None:
        """A connection without hello has closed after its last line."""
        actor = self.runs.resident(seat.run_id)
        if actor is None:
            return
        if seat.ends_with_connection:
            actor.feed(seat.source, Event("run.end"))
        else:
            actor.leave(seat.source, "bye", linger=True)
            self.lives.linger(actor)
        self.runs.commit_quietly(actor)

    # -- what ``Lives`` asks for ------------------------------------------------------------------

    def drain(self, source: str) -> bool:
        """Read what a source has sent; False where that has to wait."""
        sessions = list(self._sessions.get(source, ()))
        for session in sessions:
            session.connection.drain()
        return not any(session.connection.busy for session in sessions)

    def forget(self, source: str) -> None:
        """A source is gone."""
        self._sessions.pop(source, None)

    def tick(self, now: float) -> None:
        """Go on where storage made somebody wait; then judge who is alive at ``now``."""
        self.runs.retry()
        for session in [s for s in self._connected if s.connection.stalled]:
            session.connection.resume()
        self.lives.tick(now)
        self.runs.known.expire(now)

    # -- the rest ---------------------------------------------------------------------------------

    def next_source_id(self, peer: Identity) -> str:
        """An id for a sender that has not said hello."""
        while True:
            self._implicit += 1
            source = f"conn-{peer.pid or 0}-{self._implicit}"
            if self.runs.known.run_of(source) is None and source not in self._sessions:
                return source

    def run_dir(self, run_id: str) -> str:
        """The absolute path of a run's folder."""
        return self.runs.root.run_path(run_id)
