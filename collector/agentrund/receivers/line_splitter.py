"""Bytes to lines, however they are cut; a line over the limit is skipped up to its newline."""

from __future__ import annotations

from typing import Final

TOO_LONG: Final = None


class LineSplitter:
    """Feed it reads; it gives back whole lines, and ``TOO_LONG`` in the place of one over ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun = bytearray()
        self._skipping = False

    @property
    def partial(self) -> bool:
        """Whether a line has begun and not ended."""
        return self._skipping or bool(self._begun)

    @property
    def size(self) -> int:
        """Bytes held of a line that has begun."""
        return len(self._begun)

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that ``data`` completes, without their newlines; blank ones are left out."""
        head, *rest = data.split(b"\n")
        if not rest:
            self._hold(head)
            return []
        lines: list[bytes | None] = []
        self._hold(head)
        if self._skipping:
            lines.append(TOO_LONG)
        elif self._begun:
            lines.append(bytes(self._begun))
        self._begun, self._skipping = bytearray(), False
        lines += [line if len(line) <= self._limit else TOO_LONG for line in rest[:-1] if line]
        self._hold(rest[-1])
        return [line for line in lines if line is TOO_LONG or not line.isspace()]

    def _hold(self, part: bytes) -> None:
        if self._skipping or not part:
            return
        self._begun += part
        if len(self._begun) > self._limit:
            self._begun, self._skipping = bytearray(), True
