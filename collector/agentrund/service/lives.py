"""Who is alive: sources watched through their processes or their silence, and what their end leads to.

A death is judged in this order: what its connections still hold, what it wrote into its spool file,
then the record of its end. Connections are not this module's; it asks for them to be read to their end.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from agentrund.model.run_state import SourceState
from agentrund.model.source import Identity
from agentrund.sequencer.liveness import Heartbeats
from agentrund.service.config import Settings
from agentrund.service.process_watch import ProcessWatch, boot_id, is_running
from agentrund.service.rarely import Rarely
from agentrund.service.run_actor import RunActor
from agentrund.service.runs import Runs

log: Final = logging.getLogger(__name__)

HEARTBEATS_PER_TIMEOUT: Final = 4
"""A sender beats this often within the timeout, so that a lost beat or two is no death."""


class Connections(Protocol):
    """The open connections of sources."""

    def drain(self, source: str) -> bool:
        """Read what a source has sent; False where that has to wait."""

    def forget(self, source: str) -> None:
        """A source is gone."""


class LastWords(Protocol):
    """Where a source may have written down what it could not send."""

    def holds(self, source: str) -> bool:
        """Whether it has."""

    async def take_last_words(self, source: str, cause: str) -> None:
        """Take it in, and end the source with ``cause`` where that does not end it."""


class Lives:
    """The lives of the sources of the Unix-socket door."""

    def __init__(self, settings: Settings, runs: Runs, watch: ProcessWatch, connections: Connections) -> None:
        self.boot_id = boot_id()
        self.spool: LastWords | None = None
        self._runs = runs
        self._watch = watch
        self._connections = connections
        self._idle_close = settings.idle_close
        self._heartbeats = Heartbeats(settings.heartbeat_timeout)
        self._watching: dict[str, tuple[Identity, Callable[[str], None]]] = {}
        self._unwatched: list[tuple[Identity, Callable[[str], None]]] = []
        self._late_exits: list[tuple[str, str, str]] = []
        self._unseen = Rarely("a process cannot be watched now", runs.clock.monotonic)
        self._lingering: dict[str, float] = {}
        self._reading: set[asyncio.Task[None]] = set()

    # -- watching ---------------------------------------------------------------------------------

    def watch(self, source: SourceState, pidfd: int | None = None) -> None:
        """Watch over a source: by its process where that can be seen, else by its silence."""
        identity = source.identity
        if self._watches(source.id, identity):
            close_fd(pidfd)
            return
        gone = partial(self._process_gone, source.id, identity)
        if not identity.is_watchable:
            self._watch_unnamed(source, gone, pidfd)
            return
        self._watching[source.id] = identity, gone
        if identity.boot_id != self.boot_id:
            close_fd(pidfd)
            self._soon(gone, "host restarted")
        elif not self._watch_now(identity, gone, pidfd):
            self._soon(gone, "process exited")

    def _watches(self, source: str, identity: Identity) -> bool:
        known = self._watching.get(source)
        return known is not None and known[0] == identity

    def _watch_unnamed(self, source: SourceState, gone: Callable[[str], None], pidfd: int | None) -> None:
        """A process we cannot name: by its silence, and by the kernel's handle on it, where there is one.

        The handle alone would not do: it comes with a connection, and is not had again after a restart.
        """
        self._heartbeats.heard(source.id, self._runs.clock.monotonic())
        if pidfd is not None:
            self._watching[source.id] = source.identity, gone
            self._watch.watch_handle(pidfd, gone)

    def _watch_now(self, identity: Identity, gone: Callable[[str], None], pidfd: int | None) -> bool:
        """Whether the process is there; where that cannot be seen now, it is looked for again."""
        try:
            return self._watch.watch(identity, gone, pidfd)
        except OSError as error:
            self._unseen.warn(f"pid {identity.pid}: {error.strerror}")
            self._unwatched.append((identity, gone))
            return True

    @staticmethod
    def _soon(gone: Callable[[str], None], cause: str) -> None:
        # After the read that is being taken: what the dead had sent comes before their end.
        asyncio.get_running_loop().call_soon(gone, cause)

    def look_at_exits(self, run_id: str) -> None:
        """Deaths that have happened but were not seen yet decide first."""
        actor = self._runs.resident(run_id)
        for source in [] if actor is None else actor.state.live_sources():
            self._watch.look(source.identity)

    def alive(self, source: SourceState) -> bool:
        """Whether a source's process is there, as far as can be seen."""
        identity = source.identity
        if identity.pid is None or not identity.is_watchable:
            return source.id in self._heartbeats
        return identity.boot_id == self.boot_id and is_running(identity.pid, identity.pid_start)

    def heard(self, source: str) -> None:
        """A sign of life."""
        if source in self._heartbeats:
            self._heartbeats.heard(source, self._runs.clock.monotonic())

    def heartbeat_s(self, source: str) -> float | None:
        """How often a source must give a sign of life, None where its process is watched."""
        return self._heartbeats.timeout / HEARTBEATS_PER_TIMEOUT if source in self._heartbeats else None

    # -- ends -------------------------------------------------------------------------------------

    def _process_gone(self, source: str, identity: Identity, cause: str) -> None:
        if not self._watches(source, identity):
            return  # another process has taken the source over
        run_id = self._runs.known.run_of(source)  # now: the run it came to may be lost, and it in another
        if run_id is None:
            return
        if self.spool is not None and self.spool.holds(source):
            # It had written something down, perhaps its end: that comes before the verdict.
            task = asyncio.get_running_loop().create_task(self._last_words(self.spool, run_id, source, cause))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
            return
        self.gone(run_id, source, cause)

    async def _last_words(self, spool: LastWords, run_id: str, source: str, cause: str) -> None:
        self._connections.drain(source)
        try:
            await spool.take_last_words(source, cause)
        finally:
            self.gone(run_id, source, cause)

    def gone(self, run_id: str, source: str, cause: str) -> None:
        """A source is gone: read what it had sent, then record its end."""
        if not self._connections.drain(source):
            self._late_exits.append((run_id, source, cause))
            return
        self._watching.pop(source, None)
        self._heartbeats.forget(source)
        self._connections.forget(source)
        actor = self._runs.resident(run_id)
        if actor is None:
            return  # its run has ended long ago, and such an end is not recorded
        actor.leave(source, cause)
        self._runs.commit_quietly(actor)
        self._runs.release(run_id)

    def has_left(self, source: str) -> None:
        """A source has left, or its run is over: its silence and its death mean nothing any more."""
        known = self._watching.pop(source, None)
        if known is not None:
            self._watch.forget(*known)
        self._heartbeats.forget(source)

    def run_over(self, actor: RunActor) -> None:
        """The attempt of a run has ended, for all who took part."""
        last = len(actor.state.attempts) and actor.state.attempts[-1].n
        for source in actor.state.sources.values():
            if source.attempt == last:
                self.has_left(source.id)

    def linger(self, actor: RunActor) -> None:
        """End a run that everybody has left, unless somebody comes within ``idle_close``."""
        if actor.state.is_open and not actor.state.live_sources():
            self._lingering[actor.run_id] = self._runs.clock.monotonic() + self._idle_close

    # -- time -------------------------------------------------------------------------------------

    def grant_interval(self, now: float) -> None:
        """Our own clock has jumped: nobody is judged by that gap."""
        self._heartbeats.grant(now)
        for run_id in self._lingering:
            self._lingering[run_id] = now + self._idle_close

    def stays(self, run_id: str) -> None:
        """Somebody has come to a run that was about to end."""
        self._lingering.pop(run_id, None)

    def tick(self, now: float) -> None:
        """Judge silences, end what nobody came back to, look again for what could not be seen.

        ``now`` is the beat's: stopped after it was read, we judge nobody by the time we stood still.
        """
        self._judge_silences(now)
        self._end_lingering(now)
        unwatched, self._unwatched = self._unwatched, []
        for identity, gone in unwatched:
            if not self._watch_now(identity, gone, None):
                gone("process exited")
        for _ in range(len(self._late_exits)):
            self.gone(*self._late_exits.pop(0))

    def _judge_silences(self, now: float) -> None:
        for source in self._heartbeats.silent(now):
            # Its beats may lie in the socket, unread because we were busy, or because storage fails.
            if not self._connections.drain(source):
                self._heartbeats.heard(source, now)
            if source not in self._heartbeats.silent(now):
                continue
            run_id = self._runs.known.run_of(source)
            if run_id is not None:
                self.gone(run_id, source, "heartbeat lost")
            self._heartbeats.forget(source)

    def _end_lingering(self, now: float) -> None:
        for run_id, deadline in list(self._lingering.items()):
            if now < deadline:
                continue
            del self._lingering[run_id]
            actor = self._runs.resident(run_id)
            if actor is not None and not actor.state.live_sources():
                actor.finish(None, "all sources left")
                self._runs.commit_quietly(actor)


def close_fd(fd: int | None) -> None:
    """Close a descriptor, if there is one."""
    if fd is not None:
        os.close(fd)
