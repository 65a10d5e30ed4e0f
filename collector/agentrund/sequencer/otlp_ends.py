"""When a run told over OTLP ends, and how: the verdicts.

| evidence | verdict |
|---|---|
| all processes gone for 2 s, something open | crashed |
| all processes gone for 2 s, nothing open | ended: failed or ok by its last root or last model call |
| one process of several gone for 2 s | it leaves, cleanly where nothing of it is open |
| keyed by trace, a root has ended, nothing open, 10 s without an item | ended |
| 30 s without an item, its only connection was gone before its process could be looked up | as below |
| 30 min without an item, nothing open | ended, cause ``idle`` |
| 30 min without a sign of life, something open, no process known | crashed, cause ``silence`` |

A living process with something open is at work, however long it is silent.
"""

from __future__ import annotations

from typing import Final

from agentrund.sequencer.otlp_commands import BY_TRACE, Command, Feed, Finish, Leave
from agentrund.sequencer.otlp_run import OtlpRun
from agentrund.sequencer.producers import Producers

GRACE_S: Final = 2.0
QUIET_S: Final = 10.0
IDLE_S: Final = 1800.0
HUNG_UP_S: Final = 30.0
"""A caller that was only impatient sends again within that."""

CLEAN: Final = "bye"
IDLE: Final = "idle"
SILENCE: Final = "silence"
QUIET: Final = "quiet"
GONE: Final = "process exited"
KILLED: Final = "process exited: killed by"


def judge(run: OtlpRun, producers: Producers, now: float, idle_s: float = IDLE_S) -> list[Command]:
    """What follows for an open run from ``now`` being the time; ``idle_s`` of silence end it."""
    living = run.living()
    gone = [s for s in living if _gone_since(producers, s, now) >= GRACE_S]
    if gone and len(gone) == len(living):
        return end_gone(run, producers)
    if gone:
        return [command for source in gone for command in _leave(run, producers, source)]
    silent = now - run.last_arrival
    if silent >= QUIET_S and run.key.by == BY_TRACE and run.is_rooted and not run.is_open():
        return finish(run, QUIET)
    if all(producers.get(source).hung_up for source in living):
        idle_s = min(idle_s, HUNG_UP_S)
    return _judge_silence(run, producers, now, idle_s) if silent >= idle_s else []


def _judge_silence(run: OtlpRun, producers: Producers, now: float, idle_s: float) -> list[Command]:
    if not run.is_open():
        return finish(run, IDLE)
    living = [producers.get(source) for source in run.living()]
    if any(now - p.last_seen < idle_s or p.identity.is_watchable for p in living):
        return []
    return _crash(run, producers, {p.id: SILENCE for p in living})


def end_gone(run: OtlpRun, producers: Producers) -> list[Command]:
    """End a run whose processes are all gone, without waiting; nothing where one lives."""
    living = run.living()
    if run.ended or any(producers.get(source).exited_at is None for source in living):
        return []
    return _end(run, producers)


def end_as_gone(run: OtlpRun, producers: Producers) -> list[Command]:
    """End a run whose processes must be gone: there is another one in their place."""
    return [] if run.ended else _end(run, producers)


def _end(run: OtlpRun, producers: Producers) -> list[Command]:
    living = run.living()
    causes = {s: producers.get(s).cause or GONE for s in living}
    if any(not _is_clean(run, producers, source) for source in living):
        return _crash(run, producers, causes)
    cause = next(reversed(causes.values()), CLEAN)
    return finish(run, cause if run.roots() else f"{cause}, no end marker")


def finish(run: OtlpRun, cause: str, status: str | None = None) -> list[Command]:
    """End an open run: its sources leave, then it ends at the time of its last evidence.

    ``status`` is as it was said to have gone, None where its spans tell.
    """
    if run.ended:
        return []
    living = run.living()
    out: list[Command] = []
    died = run.died_at
    if died is not None:
        if not any(root.end_ns / 1e9 >= died for root in run.roots()):
            # One of its processes died and no root has ended since: nobody said that it went on to an end.
            run.end()
            return [c for source in living for c in _depart(run, source)]
        # The last of them stays: its leaving would make the run one that crashed.
        stays = living.pop()
        out += _inferred(run, stays)
        run.members[stays], run.died_at = False, None
    out += [c for source in living for c in _depart(run, source)]
    run.end()
    return [*out, Finish(run.key, status or run.status(), cause, run.last_ts)]


def _crash(run: OtlpRun, producers: Producers, causes: dict[str, str]) -> list[Command]:
    unclean = [s for s in causes if not _is_clean(run, producers, s)]
    out = [c for source in causes if source not in unclean for c in _depart(run, source)]
    exits = [at for source in unclean if (at := producers.get(source).exited_ts) is not None]
    for source in unclean:
        run.members[source] = False
        open_extra = [*run.asked(source), *run.lacks(source)]
        out.append(
            Leave(
                run.key,
                source,
                causes[source],
                clean=False,
                ts=producers.get(source).exited_ts,
                open_extra=open_extra,
            )
        )
    run.died_at = max(exits, default=run.last_ts)
    run.end()
    return out


def _leave(run: OtlpRun, producers: Producers, source: str) -> list[Command]:
    """One source goes while others live."""
    producer = producers.get(source)
    at = producer.exited_ts or run.last_ts
    if _is_clean(run, producers, source):
        run.members[source] = False
        return [*_inferred(run, source), Leave(run.key, source, CLEAN, clean=True, ts=at)]
    run.members[source], run.died_at = False, at
    open_extra = [*run.asked(source), *run.lacks(source)]
    return [Leave(run.key, source, producer.cause, clean=False, ts=at, open_extra=open_extra)]


def leave_late(run: OtlpRun) -> list[Command]:
    """Who has joined a run that is over leaves it: nobody will judge it again."""
    if not run.ended:
        return []
    joined = run.living()
    run.late.update(joined)
    run.members |= dict.fromkeys(joined, False)
    return [Leave(run.key, source, CLEAN, clean=True, ts=run.last_ts) for source in joined]


def _depart(run: OtlpRun, source: str) -> list[Command]:
    """A source goes, cleanly."""
    run.members[source] = False
    past = run.lacked(source)
    return [
        *_inferred(run, source),
        Leave(run.key, source, CLEAN, clean=True, ts=run.last_ts, open_extra=past),
    ]


def _inferred(run: OtlpRun, source: str) -> list[Command]:
    return [Feed(run.key, source, event) for event in run.inferred_ends(source)]


def _is_clean(run: OtlpRun, producers: Producers, source: str) -> bool:
    """Whether nothing of a source is open.

    A tool call that was asked for and not made is no crash when the process ended by itself: many
    programs ask for a tool call to get a structured answer. A turn of which nobody told the end is one when
    the process was killed where its model was to answer.
    """
    if run.has_begun(source) or run.lacks(source):
        return False
    cause = producers.get(source).cause
    if cause.startswith(KILLED) and run.awaits_model(source):
        return False
    return not run.asked(source) or cause.endswith("exit code 0")


def _gone_since(producers: Producers, source: str, now: float) -> float:
    at = producers.get(source).exited_at
    return 0.0 if at is None else now - at
