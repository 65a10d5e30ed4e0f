"""All runs of a root: which are open, where an arrival belongs, and what follows when a run changes.

The rules of the stream protocol ("Which run a hello lands in") stand in ``target`` and ``place``.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from agentrund.formats import index as index_rows
from agentrund.model.errors import Busy, Damaged, Rejected, RunUnusable, Unavailable
from agentrund.model.ids import is_run_id
from agentrund.model.run_state import Change, RunState
from agentrund.model.source import Arrival
from agentrund.service.chores import Chores
from agentrund.service.clock import Clock
from agentrund.service.finalising import Finalising
from agentrund.service.known_sources import REMEMBER_S, KnownSources
from agentrund.service.loading import AT_ONCE, UNUSED_S, Loading, damaged
from agentrund.service.lost_runs import LostRuns
from agentrund.service.run_actor import RunActor
from agentrund.service.run_entries import RunEntries
from agentrund.service.run_ids import RunIds
from agentrund.service.storage_trouble import StorageTrouble
from agentrund.service.syncing import Syncing
from agentrund.store.index_file import IndexFile
from agentrund.store.root import Root
from agentrund.store.unsynced import Unsynced

log: Final = logging.getLogger(__name__)


class Runs:
    """The open runs, and the door to the closed ones."""

    def __init__(
        self,
        root: Root,
        index: IndexFile,
        clock: Clock,
        syncing: Syncing,
        blob_max_bytes: int,
        *,
        randbelow: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        self.root, self.index, self.clock = root, index, clock
        self.trouble = StorageTrouble(clock, lambda: bool(self._blocked or self._lagging or len(self.chores)))
        self.chores = Chores(self.trouble.refused)
        self.known = KnownSources()
        self.finalising = Finalising(self._finalised, self.trouble.refused)
        self.loading = Loading(self._loaded)
        self.remaking_index = asyncio.Lock()
        self.on_ended: Callable[[RunActor], None] = lambda _actor: None
        self.in_use: Callable[[RunActor], bool] = lambda _actor: False
        self.syncing = syncing
        syncing.on_failure = self._sync_failed
        self._blob_max = blob_max_bytes
        self.ids = RunIds(clock, randbelow)
        self._actors: dict[str, RunActor] = {}
        self._sessions: dict[str, str] = {}
        self._blocked: set[RunActor] = set()
        self._lagging: set[RunActor] = set()
        self._lost = LostRuns()
        self._apart: set[str] = set()
        self.entries = RunEntries(root, index, self.chores, self._open_actor)
        self.ids.come_after(max([*index.newest(), root.latest() or ""]))

    # -- looking up -------------------------------------------------------------------------------

    def open_actors(self) -> list[RunActor]:
        """Runs with an attempt under way."""
        return [actor for actor in self._actors.values() if actor.state.is_open]

    def actors(self) -> list[RunActor]:
        """Every run at hand."""
        return list(self._actors.values())

    def _open_actor(self, run_id: str) -> RunActor | None:
        actor = self._actors.get(run_id)
        return actor if actor is not None and actor.state.is_open else None

    @property
    def blocked(self) -> int:
        """Runs with lines that storage refuses at the moment."""
        return len(self._blocked)

    def actor(self, run_id: str, at_once: int = AT_ONCE) -> RunActor:
        """The actor of a run, replayed from its trace where it is not at hand.

        Raises RunUnusable, Unavailable where the disk refuses, and Busy while a trace of more than
        ``at_once`` bytes is being read.
        """
        self._lost.check(run_id)
        actor = self._actors.get(run_id)
        if actor is None:
            actor = self._load(run_id, at_once)
            self._actors[run_id] = actor
        return actor

    @contextmanager
    def set_apart(self, run_id: str) -> Iterator[None]:
        """While a run's files are made again elsewhere, whoever wants to write to it waits."""
        self._apart.add(run_id)
        try:
            yield
        finally:
            self._apart.discard(run_id)

    def resident(self, run_id: str) -> RunActor | None:
        """The actor of a run that is at hand."""
        return self._actors.get(run_id)

    def target(
        self, source: str, run_id: str | None, session_id: str | None, parent: str | None = None
    ) -> str | None:
        """The existing run an arrival belongs to, None for a new one. Raises Rejected (``unknown_run``).

        ``parent`` is the source of the process that started it: a child that did not learn its run's id.
        """
        known = self.known.run_of(source)
        if known is not None and (known in self._actors or self.root.has_run(known)):
            return known
        if run_id is not None:
            if run_id in self._lost or not self.root.has_run(run_id):
                raise Rejected("unknown_run", f"no run {run_id[:64]!r} in this root")
            return run_id
        of_parent = None if parent is None else self.known.run_of(parent)
        if of_parent is not None:
            self.loading.look(of_parent)
        theirs = self._actors.get(of_parent or "")
        if theirs is not None and theirs.state.is_open:
            return theirs.run_id
        return None if session_id is None else self.session_target(session_id)

    def session_target(self, session_id: str) -> str | None:
        """The run of a session, open or ended."""
        run_id = self._sessions.get(session_id) or self.root.session_run(session_id)
        return None if run_id is not None and run_id in self._lost else run_id

    # -- arrivals ---------------------------------------------------------------------------------

    def place(self, who: Arrival, target: str | None) -> RunActor:
        """Give an arrival its place in an existing run, or (None) in a new one; stored when this returns.

        Raises Unavailable where storage refuses.
        """
        actor = self._actor_for(target, who)
        state = actor.state
        known, current = state.sources.get(who.source), state.attempt
        over = known is not None and (current is None or known.attempt != current.n or not state.is_open)
        if over and self.known.run_of(who.source) == actor.run_id:
            self.commit(actor)  # welcome acknowledges what it said before
            return actor  # its attempt has ended within the hour: whatever it says is late
        self._arrive(actor, who)
        self.known.add(who.source, actor.run_id)
        try:
            self.commit(actor)
        except RunUnusable:
            return self.place(who, None)
        return actor

    def open(self, who: Arrival, target: str | None) -> RunActor:
        """As ``place``, for senders whose runs are told apart by what they send: always an arrival.

        What is queued is the caller's to commit.
        """
        actor = self._actor_for(target, who)
        self._arrive(actor, who)
        return actor

    def _actor_for(self, target: str | None, who: Arrival) -> RunActor:
        if target is not None:
            try:
                return self.actor(target)
            except RunUnusable as error:
                # What its source has to say now must not be lost for what it said then.
                log.error("%s; what comes goes into a new run", error.message)  # noqa: TRY400
        return self._new_run(who)

    def _arrive(self, actor: RunActor, who: Arrival) -> None:
        """Raises Unavailable, with nothing left behind of a run that was new, where the disk refuses."""
        state = actor.state
        self._lost.explain(who)
        try:
            if state.attempt is not None and not state.is_open:
                # Before the resume itself: an open run is found again by its row, whatever happens between.
                self.entries.resume(state)
            actor.arrive(who)
        except (OSError, Unavailable) as error:
            if state.attempt is None:
                del self._actors[actor.run_id]
                actor.close()
                self.chores.do(f"removal of {actor.run_id}", partial(self.entries.discard, actor.run_id))
            if isinstance(error, OSError):
                raise Unavailable(f"cannot write the index: {error.strerror}", hint="free space") from error
            raise

    def adopt(self, actor: RunActor, session_id: str) -> None:
        """A run that began without a session has turned out to have one."""
        self._sessions.setdefault(session_id, actor.run_id)
        self.entries.adopt(actor.run_id, session_id)

    def _new_run(self, who: Arrival) -> RunActor:
        while True:
            run_id = self.ids.next()
            state = RunState(run_id)
            started = self.clock.iso(self.clock.now() if who.ts is None else who.ts)
            try:
                self.entries.begin(run_id, who, started)
                files = self.root.new_run(run_id)
            except FileExistsError:
                self.entries.blank(run_id)
                continue
            except OSError as error:
                self.entries.blank_soon(run_id)
                raise Unavailable(
                    f"cannot make run {run_id}: {error.strerror}", hint="free space or repair the disk"
                ) from error
            actor = RunActor(files, state, self.clock, self._blob_max, self)
            self._actors[run_id] = actor
            return actor

    # -- storing ----------------------------------------------------------------------------------

    def commit(self, actor: RunActor) -> None:
        """Write what a run has queued. Raises Unavailable; it is then tried again by ``retry``.

        Raises RunUnusable where the run was lost; it is gone from here then.
        """
        try:
            actor.commit()
        except Unavailable as error:
            self._blocked.add(actor)
            self.trouble.refused(f"trace of {actor.run_id}", error)
            raise
        self._blocked.discard(actor)
        if actor.files.unsynced.pending:
            self.syncing.wrote(actor.files.unsynced)
            self.entries.grown(actor.run_id)

    def commit_quietly(self, actor: RunActor) -> None:
        """As ``commit``, for what nobody waits for: a failure is left to ``retry``."""
        try:
            self.commit(actor)
        except (Unavailable, RunUnusable):
            return

    def retry(self) -> None:
        """Try again what storage refused."""
        for actor in list(self._blocked):
            self.commit_quietly(actor)
        for actor in list(self._lagging):
            if actor.render_logs():
                self._lagging.discard(actor)
                self.release(actor.run_id)
        self.chores.retry()
        self.trouble.look()

    def logs_lag(self, actor: RunActor, error: Exception) -> None:
        """A transcript could not be written."""
        self._lagging.add(actor)
        self.trouble.refused(f"agent.logs of {actor.run_id}", error)

    # -- runs that are lost -----------------------------------------------------------------------

    def run_lost(self, actor: RunActor, why: RunUnusable) -> None:
        """Its trace was removed or changed under us: what is left is closed, what comes has a new run."""
        run_id, sources = actor.run_id, list(actor.state.sources)
        log.error("%s; what comes goes into a new run", why.message)
        self._lost.add(run_id, sources, why)
        self.known.forget(run_id, sources)
        self._actors.pop(run_id, None)
        self._blocked.discard(actor)
        self._lagging.discard(actor)
        if self._sessions.get(actor.state.session_id or "") == run_id:
            del self._sessions[actor.state.session_id or ""]
        self.syncing.forget(actor.files.unsynced)
        actor.abandon()
        self.chores.do(f"end of {run_id}", partial(self._end_lost, run_id, why))

    def _end_lost(self, run_id: str, why: RunUnusable) -> None:
        """What is left of a lost run ends here, as it would at the next start."""
        if not self.root.has_run(run_id):
            self.entries.blank(run_id)
            return
        try:
            actor = self._actors.get(run_id) or self._load(run_id, AT_ONCE)
        except RunUnusable as error:
            self.entries.give_up(run_id, error)
            return
        if actor.state.attempt is None:
            actor.close()
            self.entries.blank(run_id)
            return
        self._actors[run_id] = actor
        if not actor.state.is_open:
            self.derive_again(actor)
            return
        for source in list(actor.state.live_sources()):
            actor.leave(source.id, why.message)
        actor.finish(None, why.message)  # where nobody was left in it
        self.commit(actor)

    def _sync_failed(self, unsynced: Unsynced, why: str) -> None:
        """What was written of a run, or of the intake journal, could not be put on stable storage."""
        self.trouble.refused(unsynced.key, Unavailable(f"not on stable storage: {why}"))
        actor = self._actors.get(unsynced.key)
        if actor is not None and unsynced.suspect is not None:
            self.entries.grown(actor.run_id)  # its row is as suspect
            actor.sync_failed(why)
            self.commit_quietly(actor)

    def is_lost(self, run_id: str) -> bool:
        """Whether a run's trace was removed or changed under us."""
        return run_id in self._lost

    # -- what follows -----------------------------------------------------------------------------

    def run_changed(self, actor: RunActor, change: str) -> None:
        """An attempt was opened, ended or crashed, or a late event came; it is in the trace already."""
        state, run_id = actor.state, actor.run_id
        if change == Change.OPENED:
            if state.session_id is not None:
                self._sessions[state.session_id] = run_id
            self.known.reopened(run_id)
            self.entries.announce(actor)
            return
        if change in (Change.ENDED, Change.CRASHED):
            if self._sessions.get(state.session_id or "") == run_id:
                del self._sessions[state.session_id or ""]
            self.known.ended(run_id, list(state.sources), self.clock.monotonic())
            self.on_ended(actor)
        if not state.is_open:
            self.finalising.submit(run_id, actor.files)

    def derive_again(self, actor: RunActor) -> None:
        """Make the derived files and the row of a run at hand once more."""
        if actor.state.is_open:
            self.entries.restore(actor)
        else:
            self.finalising.submit(actor.run_id, actor.files)

    def _finalised(self, run_id: str, row: index_rows.Row | None) -> None:
        """The derived files of a run are there (None: they cannot be made)."""
        actor = self._actors.get(run_id)
        if actor is None:
            return
        if actor.state.is_open:
            # Resumed meanwhile: what was just written tells of an end, and it is all done again at the next.
            self.entries.restore_soon(actor)
            return
        if row is not None:
            self.entries.end(run_id, row)
        elif not self.root.has_run(run_id):
            self.entries.blank_soon(run_id)
        self.release(run_id)

    def release(self, run_id: str) -> None:
        """Let go of an ended run that nobody is connected to; it comes back from its trace if it must."""
        actor = self._actors.get(run_id)
        if actor is None or actor.state.is_open or actor in self._blocked or actor in self._lagging:
            return
        if self.finalising.busy(run_id) or (run_id not in self._lost and self.in_use(actor)):
            return
        if actor.queued:
            # Whoever said it has left, with this turn's commit still to come.
            asyncio.get_running_loop().call_later(UNUSED_S, self.release, run_id)
            return
        if not actor.files.unsynced.settled:
            # A failed sync would need what it holds.
            self.syncing.when_durable(actor.files.unsynced, partial(self.release, run_id))
            return
        del self._actors[run_id]
        actor.close()

    # -- coming back ------------------------------------------------------------------------------

    def _load(self, run_id: str, at_once: int) -> RunActor:
        self.loading.look(run_id)
        if run_id in self._apart:
            raise Busy(f"run {run_id} is being rebuilt", hint="it takes a moment")
        try:
            files = self.root.run(run_id)
        except FileNotFoundError as error:
            raise RunUnusable(f"run {run_id} is gone", hint="its folder was removed") from error
        except Unavailable as error:
            raise RunUnusable(f"run {run_id}: {error.message}", hint=error.hint) from error
        except OSError as error:
            raise Unavailable(
                f"cannot open run {run_id}: {error.strerror}", hint="look at its folder"
            ) from error
        actor = RunActor(files, RunState(run_id), self.clock, self._blob_max, self)
        slices = actor.recover(partial(self.root.quarantine, run_id))
        if files.trace.size > at_once:
            self.loading.start(actor, slices)
            self.loading.look(run_id)
        try:
            for _ in slices:
                pass
        except Damaged as error:
            raise damaged(run_id, error) from error
        self._recall(actor)
        return actor

    def _recall(self, actor: RunActor) -> None:
        """The sources of a run that ended within the hour may have been forgotten with a restart."""
        if not actor.state.is_open and actor.files.trace.modified >= self.clock.now() - REMEMBER_S:
            self.known.remember(actor.run_id, list(actor.state.sources), self.clock.monotonic())

    def _loaded(self, actor: RunActor) -> None:
        self._recall(actor)
        self._actors[actor.run_id] = actor
        asyncio.get_running_loop().call_later(UNUSED_S, self.release, actor.run_id)

    def bring_back(self, run_id: str, at_once: int) -> RunActor | None:
        """A run whose row says ``running``, after a start; None where no attempt of it is under way.

        Raises as ``actor`` does, and OSError where the disk refuses now.
        """
        if not is_run_id(run_id) or not self.root.has_run(run_id):
            self.entries.blank(run_id)  # stopped between its row and its folder: nothing was acknowledged
            return None
        actor = self.actor(run_id, at_once)
        state = actor.state
        if state.attempt is None:
            # Stopped before its first record was whole: nothing of it was acknowledged.
            self._actors.pop(run_id).close()
            self.entries.discard(run_id)
            return None
        for source in state.sources:
            self.known.add(source, run_id)
        if not state.is_open:
            self.run_changed(actor, Change.ENDED)
            return None
        if state.session_id is not None:
            self._sessions[state.session_id] = run_id
        self.entries.restore_soon(actor)
        return actor

    async def close(self) -> bool:
        """Write everything, complete the transcripts; False where a derivation is left to the next start."""
        await self.loading.close()
        for actor in list(self._actors.values()):
            self.commit_quietly(actor)  # first: an end that is written here is still derived
        finished = await self.finalising.close()
        self.entries.refresh(None)
        self.chores.retry()
        for actor in self._actors.values():
            actor.close()
        self.index.close()
        return finished
