"""A bounded set of open descriptors: the least recently used file is closed when a new one is needed.

5,000 open runs need 10,000 files; opening one again costs less than a wake-up, so a few hundred suffice.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from agentrund.store.descriptors import cache_size

MOST: Final = 512


class OpenFiles:
    """Descriptors by key; ``limit`` is how many stay open at once.

    No more than an eighth of what the process may have, though.
    """

    def __init__(self, limit: int = MOST) -> None:
        self._limit = limit
        self._fds: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._fds)

    def get(self, key: str, opener: Callable[[], int]) -> int:
        """The descriptor for ``key``, opened where it is not. It stays valid until the next ``get``."""
        fd = self._fds.get(key)
        if fd is not None:
            self._fds.move_to_end(key)
            return fd
        most = cache_size(self._limit)
        while len(self._fds) >= most:
            os.close(self._fds.popitem(last=False)[1])
        fd = self._fds[key] = opener()
        return fd

    def drop(self, key: str) -> None:
        """Close the file of ``key`` if it is open."""
        fd = self._fds.pop(key, None)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        """Close all."""
        while self._fds:
            os.close(self._fds.popitem()[1])
