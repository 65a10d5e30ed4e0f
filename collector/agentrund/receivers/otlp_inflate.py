"""Compressed request bodies back to what they were, in bounded pieces.

gzip may have several members (RFC 1952 2.2), zstd several frames; "deflate" means zlib's form (RFC 9110
8.4.1.2), and some senders mean the bare one. Pure: no I/O. One step makes at most ``PIECE`` bytes, so the
caller can let others run between two of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

import zstandard

from agentrund.model.errors import Rejected

CODINGS: Final = ("gzip", "deflate", "zstd")
PIECE: Final = 2 << 20
_WINDOW: Final = 8 << 20
"""What RFC 9659 lets zstd have over HTTP; a larger one is memory somebody else asks for."""
_FEED: Final = 64
"""Bytes of zstd at a time: its densest block makes 128 KiB of four, and there is no other way to bound it."""
_GZIP: Final = 16 + zlib.MAX_WBITS
_CM_DEFLATE, _HEADER_CHECK = 8, 31


class TooLargeError(Rejected):
    """More than may be taken."""

    def __init__(self, limit: int) -> None:
        super().__init__("too_large", f"a request has at most {limit} bytes", hint="send smaller batches")


def inflate(coding: str, body: bytes, limit: int) -> Iterator[bytes]:
    """The pieces of a body of one of ``CODINGS``.

    Raises TooLargeError as soon as there are more than ``limit`` bytes, Rejected where it is not so coded.
    """
    pieces = _zstd(body) if coding == "zstd" else _zlib(body, _window_bits(coding, body))
    size = 0
    try:
        for piece in pieces:
            size += len(piece)
            if size > limit:
                raise TooLargeError(limit)
            yield piece
    except (zlib.error, zstandard.ZstdError) as error:
        raise Rejected("bad_otlp", f"the body is no {coding}: {error}") from error


def _window_bits(coding: str, body: bytes) -> int:
    if coding == "gzip":
        return _GZIP
    is_zlib = len(body) > 1 and body[0] & 15 == _CM_DEFLATE and not (body[0] << 8 | body[1]) % _HEADER_CHECK
    return zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS


def _zlib(body: bytes, window_bits: int) -> Iterator[bytes]:
    rest = body
    while rest:
        member = zlib.decompressobj(window_bits)
        while not member.eof:
            piece = member.decompress(rest, PIECE)
            rest = member.unconsumed_tail
            if not piece and not rest and not member.eof:
                raise zlib.error("it ends too early")
            yield piece
        rest = member.unused_data.lstrip(b"\0") if window_bits == _GZIP else b""


def _zstd(body: bytes) -> Iterator[bytes]:
    rest = body
    while rest:
        frame = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
        at = 0
        while not frame.eof:
            if at >= len(rest):
                raise zstandard.ZstdError("it ends too early")
            yield frame.decompress(rest[at : at + _FEED])
            at += _FEED
        rest = frame.unused_data + rest[at:]
