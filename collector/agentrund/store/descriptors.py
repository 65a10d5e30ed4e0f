"""A reserve of descriptors that only what we open ourselves may use.

Every sender costs two descriptors, and gRPC accepts its own connections; an open run needs some for a moment
(its folder, a blob, a derived file). So the soft limit stays below the hard one, and is raised for the length
of one call where one of our own opens finds none left.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading
from collections.abc import Callable
from typing import Final

RESERVE: Final = 64
"""Or a quarter of the hard limit, where that is less."""
NONE_LEFT: Final = frozenset({errno.EMFILE, errno.ENFILE})
_NEWCOMER: Final = 4
"""What a new connection may need: its socket, its process, a look at that."""

_raised = threading.Lock()


def keep_reserve() -> None:
    """Set the soft limit: all we may have but the reserve. The hard one may be changed while we run."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard == resource.RLIM_INFINITY else hard - min(RESERVE, hard // 4)
    if soft != wanted:
        with _raised, contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def with_reserve(opener: Callable[[], int]) -> int:
    """What ``opener`` opens, from the reserve where nothing else is left. Raises OSError."""
    try:
        return opener()
    except OSError as error:
        if error.errno not in NONE_LEFT:
            raise
    with _raised:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            return opener()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def room_for_newcomers() -> bool:
    """Whether a new connection would find what it needs."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        # The kernel gives the lowest number that is free: all below the one it gives are in use.
        lowest = os.open("/", os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in NONE_LEFT:
            return False
        raise
    os.close(lowest)
    return soft == resource.RLIM_INFINITY or lowest + _NEWCOMER <= soft


def cache_size(most: int) -> int:
    """How many files may be kept open to save opening them again: no more than an eighth of the limit."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(1, min(most, soft // 8))
