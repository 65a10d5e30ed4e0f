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

_MIN_DIGITS: Final = 8
_REMEMBERED: Final = 64


class BlobStore:
    """The blobs of one run. ``folder`` opens the run's folder."""

    def __init__(self, folder: Callable[[], Folder]) -> None:
        self._folder = folder
        self._known: OrderedDict[str, str] = OrderedDict()
        self._unsynced: list[str] = []

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
                blobs.replace(name, data)
                self._unsynced.append(name)
                return name
        blobs.replace(name, data)  # the full digest is taken by damaged content: mend it
        return name

    def take_unsynced(self) -> list[str]:
        """Names of the blobs written since the last call."""
        names, self._unsynced = self._unsynced, []
        return names

    def put_back(self, names: list[str]) -> None:
        """What ``take_unsynced`` gave could not be synced."""
        self._unsynced = names + self._unsynced

    def sync(self, names: list[str]) -> None:
        """Put blobs on stable storage, one at a time. Raises OSError, Unavailable."""
        if not names:
            return
        with self._folder() as run, run.sub(layout.BLOBS) as blobs:
            for name in names:
                blobs.sync(name)
