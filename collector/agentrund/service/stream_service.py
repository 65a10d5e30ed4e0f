"""The stream protocol's server side: seats of sources in runs, their connections, their lives and deaths."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from agentrund.model.errors import Rejected
from agentrund.model.event import Event, Json
from agentrund.model.run_state import SourceState
from agentrund.model.source import Arrival, Identity
from agentrund.receivers.decode.jsonl import Hello
from agentrund.receivers.peer import Peer
from agentrund.receivers.stream_sink import StreamConnection
from agentrund.sequencer.liveness import Heartbeats
from agentrund.sequencer.run import EARLIEST
from agentrund.service.config import Settings
from agentrund.service.process_watch import ProcessWatch, boot_id, is_running, start_time
from agentrund.service.run_actor import RunActor
from agentrund.service.runs import Runs
from agentrund.service.stream_session import Seat, Session
from agentrund.service.syncing import Syncing

log: Final = logging.getLogger(__name__)

HEARTBEATS_PER_TIMEOUT: Final = 4
"""A sender beats this often within the timeout, so that a lost beat or two is no death."""


class LastWords(Protocol):
    """Where a source may have written down what it could not send."""

    def holds(self, source: str) -> bool:
        """Whether it has."""

    async def take_last_words(self, source: str, cause: str) -> None:
        """Take it in, and end the source with ``cause`` where that does not end it."""


class StreamService:
    """Everything behind the Unix-socket door."""

    def __init__(self, settings: Settings, runs: Runs, watch: ProcessWatch, syncing: Syncing) -> None:
        self.runs = runs
        self.max_line_bytes = settings.max_line_bytes
        self.status: Callable[[], Json] = dict
        self.do: Callable[[Session, Json], None] = _nothing_to_do
        self._watch = watch
        self._syncing = syncing
        self._idle_close = settings.idle_close
        self._heartbeats = Heartbeats(settings.heartbeat_timeout)
        self._boot_id = boot_id()
        self._sessions: dict[str, set[Session]] = {}
        self.spool: LastWords | None = None
        self._reading: set[asyncio.Task[None]] = set()
        self._connected: set[Session] = set()
        self._watching: dict[str, Identity] = {}
        self._unwatched: list[tuple[Identity, Callable[[str], None]]] = []
        self._late_exits: list[tuple[str, str, str]] = []
        self._lingering: dict[str, float] = {}
        self._implicit = 0
        runs.in_use = lambda actor: any(source in self._sessions for source in actor.state.sources)

    # -- connections ------------------------------------------------------------------------------

    def connect(self, peer: Peer, connection: StreamConnection) -> Session:
        """A process has connected. Raises Rejected for another user's."""
        if peer.uid not in (os.geteuid(), 0):
            if peer.pidfd is not None:
                os.close(peer.pidfd)
            raise Rejected("not_allowed", f"uid {peer.uid} may not write here")
        try:
            start = None if peer.pid is None else start_time(peer.pid)
        except OSError as error:
            # Who it is must be known before anything is taken from it: it comes again.
            _close(peer.pidfd)
            raise Rejected("overloaded", f"cannot look at your process now: {error.strerror}") from error
        identity = Identity(peer.pid, start, None if peer.pid is None else self._boot_id, peer.uid)
        session = Session(self, connection, identity, peer.pidfd)
        self._connected.add(session)
        return session

    def disconnected(self, session: Session) -> None:
        """A connection is gone; its sources live on with their processes."""
        self._connected.discard(session)
        for seat in session.seats():
            self.unseat(session, seat)
        if session.pidfd is not None:
            os.close(session.pidfd)
            session.pidfd = None

    # -- hello ------------------------------------------------------------------------------------

    def hello(self, session: Session, hello: Hello) -> tuple[Seat, RunActor]:
        """Give a source that introduces itself its seat. Raises Rejected or Unavailable."""
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
            self._look_at_exits(target)
            self._take_over(session, who, target)
        actor = self.runs.place(who, target)
        self._lingering.pop(actor.run_id, None)
        self._sessions.setdefault(who.source, set()).add(session)
        state = actor.state.sources[who.source]
        if state.left is None and actor.state.is_open and not orphan:
            self.watch(actor, state, session.take_pidfd())
        return Seat(who.source, actor.run_id, orphan=orphan)

    def _look_at_exits(self, run_id: str) -> None:
        """Deaths that have happened but were not seen yet decide first."""
        actor = self.runs.resident(run_id)
        for source in [] if actor is None else actor.state.live_sources():
            self._watch.look(source.identity)

    def _take_over(self, session: Session, who: Arrival, run_id: str) -> None:
        """A source that is in use: its own process may connect anew, another only after its death."""
        actor = self.runs.resident(run_id)
        known = None if actor is None else actor.state.sources.get(who.source)
        if known is None:
            return
        same = known.identity.pid == who.identity.pid and known.identity.pid_start == who.identity.pid_start
        if not same and self.alive(known):
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

    # -- life -------------------------------------------------------------------------------------

    def watch(self, actor: RunActor, source: SourceState, pidfd: int | None = None) -> None:
        """Watch over a source: by its process where that can be seen, else by its silence."""
        identity = source.identity
        if self._watching.get(source.id) == identity or source.id in self._heartbeats:
            _close(pidfd)
            return
        if identity.pid is None or identity.pid_from is not None:
            _close(pidfd)
            self._heartbeats.heard(source.id, self.runs.clock.monotonic())
            return
        self._watching[source.id] = identity
        gone = partial(self._process_gone, actor.run_id, source.id, identity)
        if identity.boot_id != self._boot_id:
            _close(pidfd)
            self._soon(gone, "host restarted")
        elif not self._watch_now(identity, gone, pidfd):
            self._soon(gone, "process exited")

    def _watch_now(self, identity: Identity, gone: Callable[[str], None], pidfd: int | None) -> bool:
        """Whether the process is there; where that cannot be seen now, it is looked for again."""
        try:
            return self._watch.watch(identity, gone, pidfd)
        except OSError as error:
            log.warning("pid %s cannot be watched now: %s", identity.pid, error.strerror)
            self._unwatched.append((identity, gone))
            return True

    @staticmethod
    def _soon(gone: Callable[[str], None], cause: str) -> None:
        # After the read that is being taken: what the dead had sent comes before their end.
        asyncio.get_running_loop().call_soon(gone, cause)

    def alive(self, source: SourceState) -> bool:
        """Whether a source's process is there, as far as can be seen."""
        identity = source.identity
        if identity.pid is None or identity.pid_from is not None:
            return source.id in self._heartbeats
        return identity.boot_id == self._boot_id and is_running(identity.pid, identity.pid_start)

    def _process_gone(self, run_id: str, source: str, identity: Identity, cause: str) -> None:
        if self._watching.get(source) != identity:
            return  # another process has taken the source over
        if self.spool is not None and self.spool.holds(source):
            # It had written something down, perhaps its end: that comes before the verdict.
            task = asyncio.get_running_loop().create_task(self._last_words(self.spool, run_id, source, cause))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
            return
        self.gone(run_id, source, cause)

    async def _last_words(self, spool: LastWords, run_id: str, source: str, cause: str) -> None:
        for session in list(self._sessions.get(source, ())):
            session.connection.drain()
        try:
            await spool.take_last_words(source, cause)
        finally:
            self.gone(run_id, source, cause)

    def gone(self, run_id: str, source: str, cause: str) -> None:
        """A source's process is gone: read what it had sent, then record its end."""
        for session in list(self._sessions.get(source, ())):
            session.connection.drain()
            if session.connection.busy:
                self._late_exits.append((run_id, source, cause))
                return
        self._watching.pop(source, None)
        self._heartbeats.forget(source)
        self._sessions.pop(source, None)
        actor = self.runs.resident(run_id)
        if actor is None:
            return  # its run has ended long ago, and such an end is not recorded
        actor.leave(source, cause)
        self.runs.commit_quietly(actor)
        self.runs.release(run_id)

    def leave(self, seat: Seat, cause: str) -> None:
        """A source says it leaves."""
        actor = self.runs.resident(seat.run_id)
        if actor is None:
            return
        actor.leave(seat.source, cause)
        self._heartbeats.forget(seat.source)
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
            self.linger(actor)
        self.runs.commit_quietly(actor)

    def linger(self, actor: RunActor) -> None:
        """End a run that everybody has left, unless somebody comes within ``idle_close``."""
        if actor.state.is_open and not actor.state.live_sources():
            self._lingering[actor.run_id] = self.runs.clock.monotonic() + self._idle_close

    def heard(self, source: str) -> None:
        """A sign of life."""
        if source in self._heartbeats:
            self._heartbeats.heard(source, self.runs.clock.monotonic())

    def heartbeat_s(self, source: str) -> float | None:
        """How often a source must give a sign of life, None where its process is watched."""
        return self._heartbeats.timeout / HEARTBEATS_PER_TIMEOUT if source in self._heartbeats else None

    def grant_interval(self) -> None:
        """Our own clock has jumped: nobody is judged by that gap."""
        now = self.runs.clock.monotonic()
        self._heartbeats.grant(now)
        for run_id in self._lingering:
            self._lingering[run_id] = now + self._idle_close

    def tick(self) -> None:
        """Judge silences, end what nobody came back to, resume senders that waited for storage."""
        now = self.runs.clock.monotonic()
        for source in self._heartbeats.silent(now):
            for session in list(self._sessions.get(source, ())):
                session.connection.drain()  # its beats may lie in the socket, unread because we were busy
            if source not in self._heartbeats.silent(now):
                continue
            run_id = self.runs.known.run_of(source)
            if run_id is not None:
                self.gone(run_id, source, "heartbeat lost")
            self._heartbeats.forget(source)
        for run_id, deadline in list(self._lingering.items()):
            if now >= deadline:
                del self._lingering[run_id]
                actor = self.runs.resident(run_id)
                if actor is not None and not actor.state.live_sources():
                    actor.finish(None, "all sources left")
                    self.runs.commit_quietly(actor)
        unwatched, self._unwatched = self._unwatched, []
        for identity, gone in unwatched:
            if not self._watch_now(identity, gone, None):
                gone("process exited")
        self._resume_stalled()
        self.runs.known.expire(now)

    def _resume_stalled(self) -> None:
        self.runs.retry()
        for session in [s for s in self._connected if s.connection.stalled]:
            session.connection.resume()
        for _ in range(len(self._late_exits)):
            self.gone(*self._late_exits.pop(0))

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

    def sync(self, actor: RunActor, done: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Call ``done`` once everything written of a run is on stable storage."""
        self._syncing.flush(actor.files, done, failed)


def _nothing_to_do(_session: Session, args: Json) -> None:
    raise Rejected("bad_frame", f"cannot do {args.get('what')!r}")


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)
