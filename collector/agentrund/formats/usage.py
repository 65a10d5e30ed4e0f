"""Tokens, cost and model of one model call, from its opening and closing payloads together.

Decides how differently counting senders come to the same figures: ``tokens_in`` is everything that was
read, the cache included, unless the cache is told in the provider keys that count it apart, or is
larger than ``tokens_in`` and so cannot be part of it. Knows no prices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agentrund.model.event import Json
from agentrund.model.run_state import is_number

_APART: Final = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""How the provider that counts its cache apart from ``tokens_in`` names it: read, written."""
_READ: Final = ("cached_tokens", "tokens_cached", "cache_read_tokens")
_WRITTEN: Final = ("cache_write_tokens", "cache_creation_tokens")
CALL_KEYS: Final = ("model", "tokens_in", "tokens_out", *_APART, *_READ, *_WRITTEN)
"""The payload keys of an opening record that a call's usage may depend on."""


@dataclass(slots=True)
class Usage:
    """What one call, or many, used. ``tokens_in`` includes ``cached``."""

    tokens_in: int = 0
    cached: int = 0
    tokens_out: int = 0

    def add(self, other: Usage) -> None:
        """Count ``other`` in."""
        self.tokens_in += other.tokens_in
        self.cached += other.cached
        self.tokens_out += other.tokens_out


def usage_of(opening: Json, closing: Json) -> Usage:
    """The usage of a call. What the closing payload says overrides what the opening one says."""
    said = opening | {key: value for key, value in closing.items() if value is not None}
    tokens_in = _count(said, ("tokens_in",))
    read, written = _count(said, _APART[:1]), _count(said, _APART[1:])
    apart = bool(read or written)
    if not apart:
        read, written = _count(said, _READ), _count(said, _WRITTEN)
        apart = read + written > tokens_in
    return Usage(
        tokens_in=tokens_in + read + written if apart else tokens_in,
        cached=read,
        tokens_out=_count(said, ("tokens_out",)),
    )


def cost_of(payload: Json) -> float | None:
    """The cost a payload states, None where it states none. A stated 0 is 0."""
    cost = payload.get("cost_usd")
    return float(cost) if is_number(cost) else None


def _count(said: Json, keys: tuple[str, ...]) -> int:
    for key in keys:
        value = said.get(key)
        if is_number(value):
            return max(0, int(value))
    return 0
