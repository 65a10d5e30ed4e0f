"""Performs the commands of the OTLP sequencer on the runs, in order, and waits where the disk refuses."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from agentrund.model.errors import RunUnusable, Unavailable
from agentrund.model.source import DOOR_OTLP, Arrival, Identity
from agentrund.sequencer.otlp_commands import (
    BY_RUN,
    BY_SESSION,
    BY_TRACE,
    Adopt,
    Command,
    Done,
    Feed,
    Finish,
    Join,
    Leave,
    Measure,
    OpenRun,
    Refuse,
    RunKey,
)
from agentrund.service.metrics import MetricsWriter
from agentrund.service.process_watch import ProcessWatch, boot_id
from agentrund.service.run_actor import RunActor
from agentrund.service.runs import Runs
from agentrund.service.unstored import Unstored
from agentrund.store.intake import Intake

_REMEMBERED: Final = 2048
"""Keys of ended runs that are remembered for late items: more than the sequencer remembers."""

log: Final = logging.getLogger(__name__)


class OtlpRunner:
    """A queue of commands; ``run`` performs them until the disk refuses one."""

    def __init__(self, runs: Runs, watch: ProcessWatch, intake: Intake, metrics: MetricsWriter) -> None:
        self._runs = runs
        self._metrics = metrics
        self._watch = watch
        self._intake = intake
        self._commands: deque[Command] = deque()
        self._run_of: OrderedDict[RunKey, str] = OrderedDict()
        self._unstored = Unstored(runs)
        self._durable: list[int] = []
        self._boot_id = boot_id()
        self._unwatched: list[Identity] = []
        self._watching: set[tuple[int | None, int | None]] = set()
        self.on_exit: Callable[[Identity, str], None] = lambda _identity, _cause: None

    def add(self, commands: Iterable[Command]) -> None:
        """Queue commands."""
        self._commands.extend(commands)

    def restore(self, key: RunKey, actor: RunActor) -> None:
        """A run that is open after a restart keeps its key, and its processes are watched again."""
        self._run_of[key] = actor.run_id
        for source in actor.state.live_sources():
            if source.door == DOOR_OTLP:
                self.watch_over(source.identity)

    def recall(self, key: RunKey, run_id: str) -> None:
        """A run that ended before a restart: what comes late goes to it, where its key has no newer one."""
        self._run_of.setdefault(key, run_id)

    def run_id_of(self, key: RunKey) -> str | None:
        """The run of a key."""
        return self._run_of.get(key)

    def keys_of(self, run_id: str) -> list[RunKey]:
        """The keys a run has been told under; none where it is not told over OTLP, or has been forgotten."""
        return [key for key, known in self._run_of.items() if known == run_id]

    @property
    def waiting(self) -> bool:
        """Whether something is left to perform or to store; what files refuse waits for ``retry``."""
        return bool(self._commands or self._unstored.waiting or self._metrics.waiting)

    def retry(self) -> None:
        """What was refused is stored with the next ``run``, if it can be."""
        self._unstored.retry()

    def run(self, seconds: float = math.inf) -> bool:
        """Perform commands for so long and store what came of them; False where the disk refuses."""
        until = time.monotonic() + seconds
        unstored, refused = self._unstored, False
        if unstored.is_full:
            unstored.retry()
            unstored.commit()
        full = unstored.is_full
        try:
            while self._commands and not full:
                self._next()
                if time.monotonic() > until:
                    break
        except Unavailable as error:
            refused = True
            self._runs.trouble.refused("OTLP data", error)
        unstored.commit()
        measured = self._metrics.commit()
        if self._take_back():
            return True
        if measured and (done := unstored.take_done()):
            # A request leaves the journal when the traces that have it are as safe as its answer promised:
            # later, and a run that has ended meanwhile would get it again from the journal after a kill.
            self._runs.syncing.when_all_kept(partial(self._durable.extend, done))
        return self._mark_done() and measured and not refused and not unstored.is_full

    def _mark_done(self) -> bool:
        if not self._durable:
            return True
        try:
            while self._durable:
                self._intake.done(self._durable[0])
                self._durable.pop(0)
        except Unavailable as error:
            self._runs.trouble.refused("OTLP requests done", error)
            return False
        finally:
            self._runs.syncing.wrote(self._intake.unsynced)
        return True

    def _take_back(self) -> bool:
        """What was fed to a run that is lost now, and not stored, is fed again; whether there was any."""
        feeds = self._unstored.take_back()
        self._commands.extendleft(reversed(feeds or []))
        return feeds is not None

    def _next(self) -> None:
        command = self._commands.popleft()
        try:
            self._perform(command)
        except Unavailable:
            self._commands.appendleft(command)
            raise
        except RunUnusable as error:
            if isinstance(command, Feed | OpenRun):
                self._commands.appendleft(command)  # its run was lost just now: it goes into a new one
                self._take_back()
            else:
                log.info("%s of OTLP has nobody to go to: %s", type(command).__name__, error.message)
        except Exception:
            # A bug of ours must not stand in the way of everybody else's commands.
            log.exception("%s was not performed: a bug of ours", type(command).__name__)

    def _perform(self, command: Command) -> None:
        if isinstance(command, Feed):
            self._feed(command)
        elif isinstance(command, Refuse):
            self._actor(command.key).request_rejected(command.why)
        elif isinstance(command, Measure):
            self._metrics.add(command.point, self._run_of_metric(command.key))
        elif isinstance(command, Done):
            self._unstored.done(command.rq)
        elif isinstance(command, OpenRun):
            self._open(command.key, command.arrival)
        elif isinstance(command, Join):
            self._arrive(self._actor(command.key), command.arrival)
        elif isinstance(command, Adopt):
            self._runs.adopt(self._actor(command.key), command.session_id)
        elif isinstance(command, Leave):
            self._actor(command.key).leave(
                command.source, command.cause, ts=command.ts, extra_open=command.open_extra, linger=True
            )
        else:
            self._finish(command)

    def _feed(self, command: Feed) -> None:
        try:
            actor = self._actor(command.key)
        except RunUnusable as error:
            # What comes late for a run that is gone or damaged is kept in one of its own.
            log.error("%s; its late items go into a new run", error.message)  # noqa: TRY400
            actor = self._runs.open(self._stray(command), None)
            self._run_of[command.key] = actor.run_id
            self._unstored.touch(actor)
        if command.source not in actor.state.sources:
            actor.arrive(self._stray(command))
        self._unstored.fed(actor, command)
        actor.feed(command.source, command.event)

    def _run_of_metric(self, key: RunKey | None) -> str | None:
        """The run that a metric point belongs to, open or ended; None where there is none."""
        run_id = None if key is None else self._run_of.get(key) or self._target(key)
        return None if run_id is None or self._runs.is_lost(run_id) else run_id

    @staticmethod
    def _stray(command: Feed) -> Arrival:
        """A source whose own arrival went into a run that is gone."""
        return Arrival(command.source, door=DOOR_OTLP, metadata={"run_key": str(command.key)})

    def _actor(self, key: RunKey) -> RunActor:
        """The run of a key. Raises RunUnusable where it is gone."""
        run_id = self._run_of.get(key)
        if run_id is None:
            raise RunUnusable(f"the run of {key} is not known any more")
        actor = self._runs.actor(run_id)
        self._unstored.touch(actor)
        return actor

    def _open(self, key: RunKey, who: Arrival) -> None:
        actor = self._runs.open(who, self._target(key))
        self._run_of[key] = actor.run_id
        self._run_of.move_to_end(key)
        if len(self._run_of) > _REMEMBERED:
            self._forget_oldest()
        self._unstored.touch(actor)
        self.watch_over(who.identity)

    def _forget_oldest(self) -> None:
        key, run_id = self._run_of.popitem(last=False)
        actor = self._runs.resident(run_id)
        if actor is not None and actor.state.is_open:
            self._run_of[key] = run_id

    def _target(self, key: RunKey) -> str | None:
        """The existing run a key means; None for a new one."""
        if key.by == BY_SESSION:
            return self._runs.session_target(key.value)
        if key.by == BY_RUN and self._runs.root.has_run(key.value):
            return key.value
        if key.by in (BY_RUN, BY_TRACE):
            return self._run_of.get(key)
        return None

    def _arrive(self, actor: RunActor, who: Arrival) -> None:
        actor.arrive(who)
        self.watch_over(who.identity)

    def _finish(self, command: Finish) -> None:
        actor = self._actor(command.key)
        others = [s for s in actor.state.live_sources() if s.door != DOOR_OTLP]
        if not others:
            actor.finish(command.status, command.cause, command.ts)
            return
        # A run that is told over the socket too ends there; here only its OTLP senders leave.
        for source in actor.state.live_sources():
            if source.door == DOOR_OTLP:
                actor.leave(source.id, "bye", ts=command.ts)

    def watch_over(self, identity: Identity) -> None:
        """Hear of the end of a process; where it cannot be seen now, it is looked for again."""
        process = (identity.pid, identity.pid_start)
        if not identity.is_watchable or process in self._watching:
            return
        self._watching.add(process)
        if identity.boot_id != self._boot_id:
            asyncio.get_running_loop().call_soon(self._exited, identity, "host restarted")
        elif not self._is_watched(identity):
            # Not from here: what is being performed comes before what follows from the death.
            asyncio.get_running_loop().call_soon(self._exited, identity, "process exited")

    def _is_watched(self, identity: Identity) -> bool:
        """False where the process is gone already."""
        try:
            return self._watch.watch(identity, partial(self._exited, identity))
        except OSError as error:
            log.debug("pid %s cannot be watched now: %s", identity.pid, error)
            self._unwatched.append(identity)
            return True

    def watch_again(self) -> None:
        """Look once more for the processes that could not be seen."""
        unwatched, self._unwatched = self._unwatched, []
        for identity in unwatched:
            if not self._is_watched(identity):
                self._exited(identity, "process exited")

    def _exited(self, identity: Identity, cause: str) -> None:
        self._watching.discard((identity.pid, identity.pid_start))
        self.on_exit(identity, cause)
