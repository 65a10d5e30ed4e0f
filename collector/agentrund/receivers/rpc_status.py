"""google.rpc.Status and RetryInfo as bytes: the few fields a refusal carries, written by hand.

The messages live in a package of their own that nothing else here needs.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec
from google.protobuf.duration_pb2 import Duration

DETAILS_KEY: Final = "grpc-status-details-bin"
RETRY_KEY: Final = "google.rpc.retryinfo-bin"
"""The Python exporter reads the delay here and nowhere else."""

_RETRY_TYPE: Final = b"type.googleapis.com/google.rpc.RetryInfo"


class Code(IntEnum):
    """The codes of google.rpc.Status that are used here."""

    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


def retry_info(seconds: float) -> bytes:
    """A serialised RetryInfo."""
    delay = Duration()
    delay.FromNanoseconds(round(seconds * 1e9))
    return _field(1, delay.SerializeToString())


def status(code: int, message: str, retry_s: float | None = None) -> bytes:
    """A serialised Status, with a RetryInfo detail where ``retry_s`` is given."""
    out = b"\x08" + _varint(code) + _field(2, message.encode("utf-8", "replace"))
    if retry_s is not None:
        out += _field(3, _field(1, _RETRY_TYPE) + _field(2, retry_info(retry_s)))
    return out


def status_json(code: int, message: str) -> bytes:
    """A Status as JSON."""
    return msgspec.json.encode({"code": code, "message": message})


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
