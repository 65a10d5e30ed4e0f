"""What the collector says on stdout and stderr: never at the price of its work.

A write into a pipe that nobody reads would stand for ever, and the event loop with it; a pipe whose
reader has gone breaks. So nothing is written that would have to wait, and what was left out is counted.
"""

from __future__ import annotations

import logging
import os
import select
from typing import Final

STDOUT: Final = 1
STDERR: Final = 2


def occupy() -> None:
    """Fill standard descriptors that are closed.

    The next file we open would get such a number, and what a library prints to stderr would be in a trace.
    """
    for fd in (0, STDOUT, STDERR):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one


def say(fd: int, text: str) -> bool:
    """Write as much as can be written without waiting; whether that was all."""
    data = text.encode("utf-8", "backslashreplace")
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    try:
        while data and poll.poll(0):
            # A pipe that is ready takes this much at once.
            data = data[os.write(fd, data[: select.PIPE_BUF]) :]
    except OSError:
        return False
    return not data


class StderrHandler(logging.Handler):
    """Log lines to stderr; those that nobody would read are counted, and the count is said when one does."""

    def __init__(self) -> None:
        super().__init__()
        self._unsaid = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Say a line, or count it."""
        if self._unsaid and say(STDERR, f"({self._unsaid} lines were not said here: nobody read them)\n"):
            self._unsaid = 0
        if self._unsaid or not say(STDERR, self.format(record) + "\n"):
            self._unsaid += 1
