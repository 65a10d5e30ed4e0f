"""Blobs: payloads outside the line, in full, named by their SHA-1.

The name is the first 8 hex digits, more where those are taken by other content: two texts with equal
8-digit prefixes were found in a tenth of a second, and a name must never point to the wrong text.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha1
from typing import Final

from agentrund.formats import layout
from agentrund.store.folder import Folder
from agentrund.store.unsynced import Unsynced

_MIN_DIGITS: Final = 8
_REMEMBERED: Final = 64


class BlobStore:
    """The blobs of one run. ``folder`` opens the run's folder; ``unsynced`` is told what is written."""

    def __init__(self, folder: Callable[[], Folder], unsynced: Unsynced) -> None:
        self._folder = folder
        self._unsynced = unsynced
        self._known: OrderedDict[str, str] = OrderedDict()

    def put(self, data: bytes) -> str:
        """Store ``data`` unless it is there; returns ``blobs/<digits>.txt``.

        Raises OSError; FileNotFoundError where the run's folder is gone.
        """
        digest = sha1(data, usedforsecurity=False).hexdigest()
        with self._folder() as run, run.make(layout.BLOBS) as blobs:
            name = self._known.get(digest)
            if name is None or not blobs.has(name, len(data)):  # a known one may have been removed since
                name = self._place(blobs, digest, data)
        self._known[digest] = name
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return f"{layout.BLOBS}/{name}"

    def _place(self, blobs: Folder, digest: str, data: bytes) -> str:
        for digits in range(_MIN_DIGITS, len(digest) + 1, 4):
            name = f"{digest[:digits]}.txt"
            try:
                if blobs.read(name) == data:
                    return name
            except FileNotFoundError:
                break
        # With no digits left the name is taken by damaged content: mend it.
        blobs.replace(name, data)
        self._unsynced.wrote(name, 0, data, layout.BLOBS)
        self._unsynced.made_in()
        self._unsynced.made_in(layout.BLOBS)
        return name
