"""The one background thread: reads acks, sends what had to wait, reconnects; sleeps otherwise.

A daemon thread, started when the first link needs it and made anew in a forked child. Where no thread can be
started (an interpreter that is shutting down), whoever waits turns the loop himself.
"""

from __future__ import annotations

import os
import select
import threading
import time

from agentrund_client._guard import note_fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Pollable(Protocol):
        """What the loop serves."""

        def interest(self) -> tuple[int, int] | None:
            """The descriptor and poll mask to wait for, None where there is no connection."""

        def due(self) -> float | None:
            """When `turn` wants to be called without an event, on the monotonic clock."""

        def turn(self, events: int) -> None:
            """Do what is ready; never blocks."""


class Loop:
    """The links of one process and the thread that serves them."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._links: dict[int, Pollable] = {}
        self._woken = False
        self._open_pipe()
        self._thread: threading.Thread | None = None
        self._turning = threading.Lock()

    def add(self, link: Pollable) -> None:
        """Serve this link from now on."""
        self._links[id(link)] = link
        self._start()
        self.wake()

    def remove(self, link: Pollable) -> None:
        """Serve this link no more."""
        self._links.pop(id(link), None)

    def wake(self) -> None:
        """Make the thread look at its links again; cheap while it is about to do so anyway."""
        if not self._woken:
            self._woken = True
            try:
                os.write(self._wake_write, b"\0")
            except OSError:  # the pipe is full, so it is awake; or closed by the application
                return

    def wait(self, event: threading.Event, timeout: float) -> bool:
        """Wait until the event is set, at most `timeout` seconds; True when it is set."""
        deadline = time.monotonic() + timeout
        while not event.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if self._serving():
                event.wait(left)
            else:
                self._turn(min(left, 0.05))
        return True

    def abandon(self) -> None:
        """Close the inherited descriptors of a parent's loop, in a forked child."""
        for fd in (self._wake_read, self._wake_write):
            try:
                os.close(fd)
            except OSError:  # closed by the application
                continue

    def _open_pipe(self) -> None:
        self._wake_read, self._wake_write = os.pipe()  # close-on-exec by default (PEP 446)
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._woken = False

    def _serving(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> None:
        if self._serving():
            return
        thread = threading.Thread(target=self._run, name="agentrund", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # shutting down, or the limit of threads is reached
            return
        self._thread = thread

    def _run(self) -> None:
        while True:
            self._turn(None)

    def _turn(self, at_most: float | None) -> None:
        """Wait for one round of events and serve them."""
        with self._turning:
            try:
                self._serve(at_most)
            except Exception as fault:  # noqa: BLE001 - the thread outlives every single fault
                note_fault(fault, "Loop")
                time.sleep(0.05)  # a fault that repeats must not spin

    def _serve(self, at_most: float | None) -> None:
        links = list(self._links.values())
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        by_fd: dict[int, Pollable] = {}
        due = None if at_most is None else time.monotonic() + at_most
        for link in links:
            interest, link_due = link.interest(), link.due()
            if interest is not None:
                poller.register(*interest)
                by_fd[interest[0]] = link
            if link_due is not None:
                due = link_due if due is None else min(due, link_due)
        timeout = None if due is None else max(0.0, (due - time.monotonic()) * 1000 + 0.5)
        ready = dict(poller.poll(timeout))
        woken = ready.pop(self._wake_read, 0)
        if woken & select.POLLNVAL:  # closed by an application that closes all descriptors it does not know
            self._open_pipe()
        elif woken:
            self._rest()
        events = {id(by_fd[fd]): mask for fd, mask in ready.items()}
        for link in links:
            mask, link_due = events.get(id(link), 0), link.due()
            if mask or (link_due is not None and link_due <= time.monotonic()):
                link.turn(mask)

    def _rest(self) -> None:
        """Empty the pipe before looking at the links: what comes later wakes us again."""
        try:
            os.read(self._wake_read, 4096)
        except OSError:  # closed by the application
            return
        finally:
            self._woken = False


_loop: Loop | None = None


def the_loop() -> Loop:
    """The loop of this process; a forked child gets its own."""
    global _loop  # noqa: PLW0603 - one per process
    if _loop is None or _loop.pid != os.getpid():
        _loop = Loop()
    return _loop


def abandon_inherited() -> None:
    """Forget the parent's loop, in a forked child."""
    global _loop  # noqa: PLW0603 - one per process
    if _loop is not None and _loop.pid != os.getpid():
        _loop.abandon()
        _loop = None
