"""How numbers are shown to people: money, durations, sizes, anchors. One spelling for every file.

Decides formats only. Must not know which figure stands where.
"""

from __future__ import annotations

from typing import Final

_FOUR_DIGITS: Final = 1000
_THOUSAND: Final = 1000
_KB: Final = 1024
_MB: Final = 1024 * 1024
_FLOAT_SAFE: Final = 2**53


def anchor(seq: int) -> str:
    """``#0016``: at least four digits, more where the number needs them."""
    # Without a format spec the string is made twice as fast, and every line has one.
    return f"#{seq}" if seq >= _FOUR_DIGITS else f"#{seq:04d}"


def money(usd: float) -> str:
    """``$0.0230``."""
    return f"${usd:.4f}"


def seconds(dur_ms: int) -> str:
    """``74.6s``; a duration is always in seconds, so that columns can be compared."""
    # A sender may claim any integer, and a float ends at 308 digits.
    return f"{dur_ms / 1000:.1f}s" if dur_ms < _FLOAT_SAFE else f"{dur_ms // 1000}.0s"


def size(octets: int) -> str:
    """``86 B``, ``270.9 KB``, ``1.5 MB`` (powers of 1024)."""
    if octets < _KB:
        return f"{octets} B"
    if octets < _MB:
        return f"{octets / _KB:.1f} KB"
    return f"{octets / _MB:.1f} MB"


def tokens(count: int) -> str:
    """``386 tok``, ``12.4k tok``: the short form for rows that sum many calls."""
    return f"{count} tok" if count < _THOUSAND else f"{count / _THOUSAND:.1f}k tok"


def pointer(octets: int, ref: str) -> str:
    """``270.9 KB -> blobs/9fa2c1e4.txt``."""
    return f"{size(octets)} -> {ref}"
