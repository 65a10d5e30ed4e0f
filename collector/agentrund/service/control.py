"""Answers the control service: who lives, which run is over, how it is, what is in it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
import orjson

from agentrund import __version__
from agentrund.formats import layout
from agentrund.model.errors import NoSuchRun, Overloaded, Rejected, Unavailable, UsageError
from agentrund.model.event import Json
from agentrund.model.otlp import Peer, Resource
from agentrund.receivers import peer as unix_peer
from agentrund.receivers.control_sink import Beat, CollectorInfo, RunInfo, RunName
from agentrund.sequencer import otlp_control
from agentrund.sequencer.otlp_commands import Part, RunKey
from agentrund.sequencer.otlp_runs import OtlpRuns
from agentrund.service.access import Access
from agentrund.service.otlp_runner import OtlpRunner
from agentrund.service.otlp_service import OtlpService
from agentrund.service.peer_finder import PeerFinder
from agentrund.service.process_watch import process_groups
from agentrund.service.run_actor import RunActor
from agentrund.service.runs import Runs
from agentrund.views import trace
from agentrund.views.folder import Root
from agentrund.views.tail import Tail

POLL_S: Final = 0.2
WATCHERS: Final = 64
"""Tails at a time; each holds a descriptor."""
_BEATS_IN_TIMEOUT: Final = 3
"""Two may be lost on the way."""
_RETRY_S: Final = 5.0
_PID_DIGITS: Final = 18
"""What OTLP calls a number has 64 bits."""


class _Attempt(msgspec.Struct):
    """Of meta.json, what tells how a run is."""

    n: int
    outcome: str
    last_seq: int = 0
    cause: str | None = None


class _Meta(msgspec.Struct):
    session_id: str | None
    attempts: list[_Attempt]


class Control:
    """``demands_token``: whoever calls has shown one. ``report`` is what ``agentrund status`` shows."""

    def __init__(
        self,
        runs: Runs,
        machine: OtlpRuns,
        runner: OtlpRunner,
        otlp: OtlpService,
        *,
        finder: PeerFinder,
        access: Access,
        demands_token: bool,
        heartbeat_s: float,
        report: Callable[[], Json],
    ) -> None:
        self._runs = runs
        self._machine = machine
        self._runner = runner
        self._otlp = otlp
        self._finder = finder
        self._access = access
        self._demands_token = demands_token
        self._heartbeat_s = heartbeat_s
        self._report = report
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="control")
        self._watchers = 0

    async def admit(self, peer: Peer) -> Peer:
        """As the Unix socket does: our own user, root, and the group that is let in."""
        # A port says nothing of a user: whoever takes one that was ours would be let in for us.
        peer = await self._finder.find(peer, afresh=True)
        if not (self._demands_token or self._is_one_of_us(peer)):
            raise Rejected(
                "not_allowed",
                "only processes of the collector's own user on this host may call",
                hint="let the collector demand a token, and send it with the call",
            )
        return peer

    def _is_one_of_us(self, peer: Peer) -> bool:
        pid, uid = peer.identity.pid, peer.identity.uid
        if uid is None:
            return False
        gids = frozenset[int]() if pid is None else process_groups(pid)
        return self._access.admits(unix_peer.Peer(pid, uid, gids, None))

    def beat(self, peer: Peer, resource: Mapping[str, str]) -> Beat:
        """The caller is alive."""
        now = self._runs.clock.monotonic()
        producer, keys = otlp_control.beat(self._machine, peer, _resource(resource), now)
        every = self._heartbeat_s / _BEATS_IN_TIMEOUT if producer.beats else 0.0
        return Beat(producer.id, every, [run_id for key in keys if (run_id := self._runner.run_id_of(key))])

    # -- ends -------------------------------------------------------------------------------------

    async def end(
        self, peer: Peer, name: RunName, resource: Mapping[str, str], status: str | None, cause: str
    ) -> list[RunInfo]:
        """End one run, or all that the caller has under way; what it was told before comes first."""
        keys: list[RunKey] = []

        def decide() -> Iterator[Part]:
            now = self._runs.clock.monotonic()
            keys.extend(self._keys(peer, name, resource, now))
            for key in keys:
                yield from otlp_control.end(self._machine, key, status, cause, now)

        await self._otlp.after_all(decide)
        run_ids = dict.fromkeys(run_id for key in keys if (run_id := self._runner.run_id_of(key)) is not None)
        if run_ids:
            return [await self._stored(run_id) for run_id in run_ids]
        if name == RunName():
            raise NoSuchRun("this process has no run under way", hint="name a run or its session")
        return [self._ended(await self.run(name))]

    def _keys(self, peer: Peer, name: RunName, resource: Mapping[str, str], now: float) -> list[RunKey]:
        if name == RunName():
            return otlp_control.keys_of_process(self._machine, peer, _resource(resource), now)
        run_id = name.run_id if name.session_id is None else self._runs.session_target(name.session_id)
        keys = [otlp_control.key_of_run(self._machine, name.run_id, name.session_id)]
        if run_id is not None:
            # Resumed by its id a run has another key than before.
            keys += [otlp_control.key_of_run(self._machine, run_id, None), *self._runner.keys_of(run_id)]
        return list(dict.fromkeys(key for key in keys if key is not None))

    @staticmethod
    def _ended(info: RunInfo) -> RunInfo:
        if info.status == "running":
            raise UsageError(f"run {info.run_id} is told over the socket", hint="its owner ends it there")
        return info

    async def _stored(self, run_id: str) -> RunInfo:
        actor = self._runs.resident(run_id)
        if actor is None:  # it had ended before, and was let go of
            return await self.run(RunName(run_id))
        info = self._info(actor)
        if actor.queued:
            raise Unavailable(f"the end of {run_id} is not written yet", hint="free space, and call again")
        await self._runs.syncing.kept(actor.files.unsynced)
        return info

    # -- looks ------------------------------------------------------------------------------------

    def collector(self) -> CollectorInfo:
        """The collector, and its open runs."""
        report = self._report()
        return CollectorInfo(
            __version__,
            os.getpid(),
            report["started_at"],
            report["root"],
            [self._info(actor) for actor in self._runs.open_actors()],
            orjson.dumps(report).decode(),
        )

    async def run(self, name: RunName) -> RunInfo:
        """One run: as it is at hand, else as its meta.json says."""
        run_id = self._named(name)
        actor = self._runs.resident(run_id)
        if actor is not None and actor.state.attempt is not None:
            return self._info(actor)
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._read_info, run_id)

    def _named(self, name: RunName) -> str:
        run_id = name.run_id
        if name.session_id is not None:
            run_id = self._runs.session_target(name.session_id)
        if run_id is None or not self._runs.root.has_run(run_id):
            raise NoSuchRun(f"no run of {name.run_id or name.session_id!r:.80} in this root")
        return run_id

    def _info(self, actor: RunActor) -> RunInfo:
        state = actor.state
        attempt = state.attempts[-1]
        return RunInfo(
            actor.run_id,
            state.session_id,
            attempt.outcome,
            attempt.n,
            state.last_seq,
            self._folder(actor.run_id),
            len(state.live_sources()),
            attempt.cause,
        )

    def _read_info(self, run_id: str) -> RunInfo:
        try:
            text = self._root().read(f"{layout.run_dir(run_id)}/{layout.META}")
            meta = msgspec.json.decode(text, type=_Meta)
            last = meta.attempts[-1]
        except (FileNotFoundError, msgspec.DecodeError, IndexError) as error:
            raise Unavailable(
                f"run {run_id} has no meta.json to read", hint=f"run `agentrund rebuild {run_id}`"
            ) from error
        return RunInfo(
            run_id, meta.session_id, last.outcome, last.n, last.last_seq, self._folder(run_id), 0, last.cause
        )

    def _folder(self, run_id: str) -> str:
        return f"{self._runs.root.folder.path}/{layout.run_dir(run_id)}"

    def _root(self) -> Root:
        return Root(Path(self._runs.root.folder.path))

    # -- following --------------------------------------------------------------------------------

    async def tail(self, name: RunName, after: int, *, follow: bool) -> AsyncIterator[tuple[int, bytes]]:
        """Records as they are in trace.jsonl, whoever wrote them."""
        run_id = self._named(name)
        if self._watchers >= WATCHERS:
            raise Overloaded(f"{WATCHERS} tails are open already", retry_s=_RETRY_S)
        loop = asyncio.get_running_loop()
        self._watchers += 1
        try:
            with Tail(self._root(), run_id, after=after, last=0, as_json=True) as reading:
                while True:
                    while data := await loop.run_in_executor(self._reader, reading.read):
                        for line in data.split(b"\n"):
                            if (seq := trace.seq_of(line)) is not None:
                                yield seq, line
                    if not follow:
                        return
                    await asyncio.sleep(POLL_S)
        finally:
            self._watchers -= 1

    def close(self) -> None:
        """Let go of the thread that reads."""
        self._reader.shutdown(wait=False, cancel_futures=True)


def _resource(attributes: Mapping[str, str]) -> Resource:
    """As an exporter would send it: there the pid is a number."""
    known: Json = dict(attributes)
    pid = attributes.get("process.pid", "")
    if pid.isascii() and pid.isdecimal() and len(pid) <= _PID_DIGITS:
        known["process.pid"] = int(pid)
    return Resource(known)
