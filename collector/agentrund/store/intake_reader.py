"""The intake journal read from one request on, in order, by somebody with a pace of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Final

from agentrund.formats import intake_record
from agentrund.formats.intake_record import MAGIC
from agentrund.model.errors import Damaged
from agentrund.model.otlp import IntakeRecord
from agentrund.store.folder import Folder

log: Final = logging.getLogger(__name__)

_LENGTH_BYTES: Final = 8
"""Of a record, its length and checksum."""


class IntakeReader:
    """Gives every request whose number is above ``after``, once. For the thread that writes the journal."""

    def __init__(self, folder: Callable[[], Folder], suffix: str, after: int) -> None:
        self._folder = folder
        self._suffix = suffix
        self._fd = -1
        self._offset = 0
        self.after = after
        self.segment = 0
        """The first number of the segment it is in: that one and later ones are still needed."""

    def next(self) -> IntakeRecord | None:
        """The next request, None where there is none yet. Raises OSError where it cannot be read."""
        while self._fd >= 0 or self._advance():
            record = self._record()
            if record is None:
                if not self._advance():
                    return None
            elif isinstance(record, IntakeRecord) and record.rq > self.after:
                self.after = record.rq
                return record
        return None

    def close(self) -> None:
        """Close the segment's file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _record(self) -> IntakeRecord | intake_record.Done | None:
        """What lies where it stands; None at the segment's end, or where that is damaged."""
        head = os.pread(self._fd, _LENGTH_BYTES, self._offset)
        if len(head) < _LENGTH_BYTES:
            return None
        length = int.from_bytes(head[:4], "little")
        data = os.pread(self._fd, _LENGTH_BYTES + min(length, intake_record.CONTENT_MAX), self._offset)
        try:
            size, record = intake_record.decode(memoryview(data), f"{self.segment}", self._offset)
        except Damaged as damage:
            log.warning("what follows byte %d of intake segment %s is damaged", self._offset, self.segment)
            log.debug("%s", damage)
            self._offset = os.fstat(self._fd).st_size
            return None
        self._offset += size
        return record

    def _advance(self) -> bool:
        """Go to the next segment; False where there is none."""
        with self._folder() as folder:
            segments = filter(self._is_one, folder.names())
            firsts = sorted(int(name.removesuffix(self._suffix)) for name in segments)
            following = [first for first in firsts if first > self.segment]
            if not following:
                return False
            if self._fd < 0:
                # The one that what comes next may lie in: those before it end earlier.
                following = [first for first in following if first <= self.after + 1][-1:] or following
            fd = folder.open_file(f"{following[0]:016d}{self._suffix}", os.O_RDONLY)
        self.close()
        self._fd, self._offset, self.segment = fd, len(MAGIC), following[0]
        return True

    def _is_one(self, name: str) -> bool:
        return name.endswith(self._suffix) and name.removesuffix(self._suffix).isdecimal()
