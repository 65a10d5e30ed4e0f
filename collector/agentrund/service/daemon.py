"""``agentrund serve``: take the root and the socket, run the collector until a signal, leave in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from typing import Any, Final

import uvloop

from agentrund.formats.escape import block, one_line
from agentrund.service import cgroups, exposure, places, standard_streams
from agentrund.service.access import Access
from agentrund.service.collector import Collector
from agentrund.service.config import CGROUP, Settings
from agentrund.service.listener import Listener
from agentrund.service.memory import keep_no_large_blocks
from agentrund.store import descriptors
from agentrund.store.root import Root

log: Final = logging.getLogger(__name__)

GC_THRESHOLDS: Final = (2_000, 2, 10_000)
"""The young ones, and those of the last few thousand that have grown older: 2 and 6 ms at most. All others
are looked at where memory has grown (``memory.give_back``)."""
SWITCH_S: Final = 0.001
LEAVE_AT_ONCE: Final = 130
"""Exit code after a second signal: interrupted."""
LEAVE_AFTER_S: Final = 4.5
"""A stop may take five seconds in all, whatever the disk does."""


def serve(settings: Settings, *, insecure: bool = False) -> int:
    """Run a collector until a signal ends it; returns the exit code. Raises Unavailable, UsageError.

    ``insecure`` lets the OTLP listener be reached by other machines with nothing demanded of them.
    """
    # Until there is somebody to take it: a terminal that is closed must not end the start either.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    standard_streams.occupy()
    handler = standard_streams.StderrHandler()
    handler.setFormatter(_Harmless("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    _tell_of_memory(settings)
    # As many descriptors as we may have: each sender holds one, each watched process another.
    descriptors.keep_reserve()
    # A file-size limit must show as an error of the write, like a full disk.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    demanded = exposure.demands(settings, insecure=insecure)
    access = Access.of(settings.group)
    os.umask(access.umask)
    # What lives longer than a request holds no cycles; a look through all that is held takes half a second.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    # Deriving a run's files must not keep the loop waiting for the interpreter for 5 ms at a time.
    sys.setswitchinterval(SWITCH_S)
    keep_no_large_blocks()
    if not uvloop.run(_serve(settings, access.gid, demanded)):
        # A derivation too long to wait for: the next start makes it again, this end is within its time.
        os._exit(0)
    return 0


def _tell_of_memory(settings: Settings) -> None:
    limit = cgroups.memory_limit()
    if limit is None:
        return
    shown = f"max_memory is {settings.show('max_memory')}, and the kernel gives this cgroup {limit >> 20} MiB"
    if settings.max_memory >= limit:
        log.warning("%s: it may kill the collector before senders are told to wait; lower max_memory", shown)
    elif settings.origins["max_memory"] == CGROUP:
        log.info("%s", shown)


class _Harmless(logging.Formatter):
    """A message is one line, whatever names stand in it; of a traceback only the lines are left raw."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        return one_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return block(super().formatException(ei)).decode()


async def _serve(settings: Settings, gid: int | None, demanded: exposure.Demands) -> bool:
    """Run until a signal; False where work was left to the next start."""
    path = places.listen_socket(settings.socket, os.environ, gid)
    with contextlib.ExitStack() as stack:
        # The socket first: where another collector serves it, no root is made for nothing.
        listener = stack.enter_context(contextlib.closing(Listener(path, gid)))
        owner = {"pid": os.getpid(), "socket": str(path)}
        root = stack.enter_context(contextlib.closing(Root.open(settings.root, owner, gid)))
        collector = Collector(settings, root, listener, demanded)
        stop = _stop_on_signal()
        try:
            await collector.start()
            await stop.wait()
        finally:
            finished = await collector.stop()
    return finished


def _leave() -> None:
    """As after a SIGKILL nothing acknowledged is lost, and the next start completes what is left."""
    log.warning("the disk is too slow for an orderly stop: leaving; what is not acknowledged is sent again")
    os._exit(0)


def _stop_on_signal() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; the second leaves at once."""
    stop = asyncio.Event()
    # A thread: what holds a stop up is a write or a sync that does not return, and with it the loop.
    watchdog = threading.Timer(LEAVE_AFTER_S, _leave)
    watchdog.daemon = True

    def received() -> None:
        if stop.is_set():
            os._exit(LEAVE_AT_ONCE)
        log.info("stopping")
        stop.set()
        watchdog.start()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, received)
    # No setting can be changed while it runs yet; a terminal that is closed must not end the recording.
    loop.add_signal_handler(signal.SIGHUP, lambda: log.info("SIGHUP: nothing to reload"))
    return stop
