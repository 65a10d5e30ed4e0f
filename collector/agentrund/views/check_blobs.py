"""Whether every blob a trace names is there, whole, and the right one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import sha1
from typing import Final

from agentrund.formats import layout
from agentrund.formats.spilled import REF, pointers
from agentrund.model.errors import Damaged
from agentrund.model.event import Record
from agentrund.views.finding import Finding
from agentrund.views.folder import Root

_CHUNK: Final = 1 << 20
_REMEMBERED: Final = 4096
_HINT: Final = "the text is gone unless another copy of the blob exists"


class BlobCheck:
    """Checks the blobs of one run, each of them once as long as it is remembered."""

    def __init__(self, root: Root, run_id: str) -> None:
        self._root = root
        self._folder = layout.run_dir(run_id)
        self._seen: OrderedDict[tuple[str, int], None] = OrderedDict()

    def feed(self, record: Record) -> Iterator[Finding]:
        """Check what ``record`` names."""
        for octets, ref in pointers(record.payload):
            match = REF.fullmatch(ref)
            if match is None or (ref, octets) in self._seen:
                continue
            self._seen[ref, octets] = None
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
            yield from self._check(f"{self._folder}/{ref}", match[1], octets, record.seq)

    def _check(self, relative: str, digest: str, octets: int, seq: int) -> Iterator[Finding]:
        path = str(self._root.path / relative)
        try:
            file = self._root.open(relative)
        except FileNotFoundError:
            yield Finding(path, 0, f"missing; #{seq:04d} names it", _HINT)
            return
        except Damaged as error:
            yield Finding(path, 0, error.message, error.hint)
            return
        content, size = sha1(usedforsecurity=False), 0
        with file:
            while chunk := file.read(_CHUNK):
                content.update(chunk)
                size += len(chunk)
        if size != octets:
            yield Finding(path, min(size, octets), f"{size} bytes; #{seq:04d} says {octets}", _HINT)
        elif not content.hexdigest().startswith(digest):
            yield Finding(path, 0, f"its SHA-1 is {content.hexdigest()}, not that of its name", _HINT)
