"""One damage: where it is, what is wrong, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from agentrund.model.errors import Damaged


@dataclass(slots=True, frozen=True)
class Finding:
    """``path`` is as a person would open it, ``offset`` in bytes from the file's beginning."""

    path: str
    offset: int
    message: str
    hint: str

    @classmethod
    def of(cls, error: Damaged) -> Self:
        """The finding a reader ran into."""
        return cls(error.path, error.offset, error.message, error.hint)
