"""A wall clock that a test can set while a process runs, by libfaketime; the monotonic clock goes on as it is."""

from __future__ import annotations

import glob
import time
from datetime import datetime
from pathlib import Path

import pytest

_LIBRARIES = ("/usr/lib*/faketime/libfaketimeMT.so.1", "/usr/lib*/*/faketime/libfaketimeMT.so.1")


class FakedTime:
    """``env`` makes a process see the clock; ``set`` moves it, for all of them, at once."""

    def __init__(self, folder: Path) -> None:
        libraries = [path for pattern in _LIBRARIES for path in glob.glob(pattern)]
        if not libraries:
            pytest.skip("libfaketime is not installed (Debian package libfaketime)")
        self._file = folder / "faked-time"
        self.env = {
            "LD_PRELOAD": libraries[0],
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        self.offset = 0.0
        self.set(0)

    def set(self, offset: float) -> None:
        """Set the clock to ``offset`` seconds beside the true time."""
        self.offset = offset
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset:+.3f}\n")
        new.replace(self._file)  # nobody may read half of it

    def show(self, at: datetime) -> None:
        """Set the clock to a time, from which it goes on."""
        self.set(at.timestamp() - time.time())

    def now(self) -> float:
        """What the clock shows."""
        return time.time() + self.offset
