"""One action at a time, also within one thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Turnstile:
    """Runs actions under a lock, in the order they were asked for.

    A plain lock is not enough: a signal handler or a finaliser may emit in the middle of an action of the
    same thread. With a plain lock that deadlocks, with a re-entrant one two actions run through each other.
    Here the inner one runs right after the outer one.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._busy = False
        self._todo: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def __call__(self, action: Callable[..., None], *args: Any) -> None:
        """Run the action, now or (when this thread is inside already) next."""
        with self._lock:
            self._todo.append((action, args))
            if self._busy:
                return
            self._busy = True
            try:
                while self._todo:
                    following, arguments = self._todo.popleft()
                    following(*arguments)
            finally:
                self._busy = False
