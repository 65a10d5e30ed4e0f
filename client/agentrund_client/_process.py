"""The runs of this process and its three moments: a fork, an uncaught exception, the exit."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from types import TracebackType

from agentrund_client._context import Place, get_place
from agentrund_client._discover import disabled, seconds
from agentrund_client._environment import PARENT, RUN_ID, inherited
from agentrund_client._guard import guarded, nothing
from agentrund_client._loop import abandon_inherited
from agentrund_client._recorder import Recorder, is_fault
from agentrund_client._source import opening_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# At most so long an exit waits for the last ack (seconds); what is not acked then goes into the spool.
EXIT_TIMEOUT = 0.5
# A fork right after the run's start waits for the run's id, which the child needs: at most so long, and once.
FORK_PATIENCE = 0.2

_recorders: list[Recorder] = []
_main: Recorder | None = None
_hooked = False
_crashed = False


def main_recorder() -> Recorder | None:
    """The run that threads without a context of their own belong to: the first that is open, or the last."""
    return _main


def the_place() -> Place | None:
    """Where the caller is; starts a run where the process has none yet. None: the client is switched off."""
    place = get_place()
    if place is None:
        recorder = _main or (None if disabled() else start_recorder())
        return None if recorder is None else Place(recorder, None)
    return place


def start_recorder(
    session_id: str | None = None, guardrails: Any = None, meta: Any = None, tags: Any = (), **described: Any
) -> Recorder:
    """Open a run, or join the one the environment names, and say hello."""
    global _main  # noqa: PLW0603 - one per process
    _hook()
    first = _main is None or _main.ended
    recorder = Recorder(
        opening_of(session_id, guardrails, meta, tags, described),
        run_id=inherited(RUN_ID),
        parent=inherited(PARENT),
        exports=first,
    )
    _recorders[:] = [old for old in _recorders if not old.ended or old.source.link.unsettled]
    _recorders.append(recorder)
    if first:
        _main = recorder
    recorder.source.link.start()
    return recorder


@guarded(nothing)
def shut_down() -> None:
    """End what is not ended, and give the lines on their way a moment. Safe to call more than once."""
    leaving = sys.exc_info()[1]  # multiprocessing calls this while the exception of its target is on its way
    if is_fault(leaving):
        _record_uncaught(leaving)
    deadline = time.monotonic() + seconds("AGENTRUND_EXIT_TIMEOUT", EXIT_TIMEOUT)
    mine = [recorder for recorder in _recorders if recorder.source.pid == os.getpid()]
    for recorder in mine:
        recorder.end("failed" if _crashed else None, {})
    for recorder in mine:
        recorder.source.link.leave(max(0.0, deadline - time.monotonic()))


def _hook() -> None:
    """Once per process, with its first run: the hooks of fork and uncaught exceptions."""
    global _hooked  # noqa: PLW0603 - one per process
    if _hooked:
        return
    _hooked = True
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
    _chain_hooks()
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        _finalise_with_multiprocessing(None)


def _chain_hooks() -> None:
    previous, previous_in_thread = sys.excepthook, threading.excepthook

    def uncaught(kind: type[BaseException], fault: BaseException, trace: TracebackType | None) -> None:
        _record_uncaught(fault)
        previous(kind, fault, trace)

    def uncaught_in_thread(args: Any) -> None:
        if args.exc_type is not SystemExit:
            _record(args.exc_value)
        previous_in_thread(args)

    sys.excepthook, threading.excepthook = uncaught, uncaught_in_thread


def _record_uncaught(fault: BaseException | None) -> None:
    global _crashed  # noqa: PLW0603 - one per process
    _crashed = True
    _record(fault)


@guarded(nothing)
def _record(fault: BaseException | None) -> None:
    place = get_place() or (Place(_main, None) if _main is not None else None)
    if place is not None and fault is not None and not place.recorder.ended:
        place.recorder.report(fault, place)


@guarded(nothing)
def _before_fork() -> None:
    if _main is not None and not _main.waited_for_fork:
        _main.waited_for_fork = True
        _main.source.link.wait_welcome(FORK_PATIENCE)


@guarded(nothing)
def _after_fork() -> None:
    abandon_inherited()
    for recorder in _recorders:
        recorder.fork()
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        # Its children leave by os._exit, past atexit, and forget the finalisers they inherited.
        util.register_after_fork(_after_fork, _finalise_with_multiprocessing)


def _finalise_with_multiprocessing(_: object) -> None:
    from multiprocessing.util import Finalize  # noqa: PLC0415 - only where multiprocessing is loaded already

    Finalize(None, shut_down, exitpriority=-1000)


# Registered with the import and not with the run: handlers run in reverse, so the agent's own come first.
atexit.register(shut_down)
