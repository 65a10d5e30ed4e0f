r"""The bytes of an intake segment: a magic line, then records, each of them length, CRC32 and content.

A record is a request or the word that a request is done (all its items are in traces). All numbers
are little-endian. The reader is strict: the first byte that is not what it should be raises Damaged
with its offset, and everything before it has been given.

```
segment  = "agentrund intake 1\n" record*
record   = length:u32 crc32(content):u32 content
content  = 1:u8 rq:u64 arrived_at:f64 signal:u8 encoding:u8 meta_length:u32 meta(JSON) body   a request
         | 2:u8 rq:u64                                                                        done
```
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from agentrund.model.errors import Damaged
from agentrund.model.otlp import Encoding, IntakeRecord, Peer, Signal
from agentrund.model.source import Identity

MAGIC: Final = b"agentrund intake 1\n"
CONTENT_MAX: Final = 1 << 31
"""No request is this long; a length beyond it is damage."""

_HEADER: Final = struct.Struct("<II")
_REQUEST: Final = struct.Struct("<BQdBBI")
_DONE: Final = struct.Struct("<BQ")
_IS_REQUEST: Final = 1
_IS_DONE: Final = 2

_SIGNALS: Final = (Signal.TRACES, Signal.LOGS, Signal.METRICS)
_ENCODINGS: Final = (Encoding.PROTOBUF, Encoding.JSON)


@dataclass(slots=True, frozen=True)
class Done:
    """All items of request ``rq`` are in traces."""

    rq: int


@dataclass(slots=True, frozen=True)
class Placed:
    """A record and where it lies: from ``offset`` up to ``end``."""

    offset: int
    end: int
    record: IntakeRecord | Done


def encode_request(record: IntakeRecord) -> tuple[bytes, bytes]:
    """A request's record in two pieces, so that a large body is not copied."""
    meta = json.dumps(_peer_to_json(record.peer), separators=(",", ":")).encode()
    content = (
        _REQUEST.pack(
            _IS_REQUEST,
            record.rq,
            record.arrived_at,
            _SIGNALS.index(record.signal),
            _ENCODINGS.index(record.encoding),
            len(meta),
        )
        + meta
    )
    crc = zlib.crc32(record.body, zlib.crc32(content))
    return _HEADER.pack(len(content) + len(record.body), crc) + content, record.body


def encode_done(rq: int) -> bytes:
    """The record that request ``rq`` is done."""
    content = _DONE.pack(_IS_DONE, rq)
    return _HEADER.pack(len(content), zlib.crc32(content)) + content


def read(data: memoryview, path: str) -> Iterator[Placed]:
    """Every record of a segment, in order. Raises Damaged at the first torn or corrupt byte."""
    if bytes(data[: len(MAGIC)]) != MAGIC:
        raise Damaged("not an intake segment", path=path, offset=0)
    offset = len(MAGIC)
    while offset < len(data):
        size, record = decode(data[offset:], path, offset)
        yield Placed(offset, offset + size, record)
        offset += size


def decode(data: memoryview, path: str, offset: int) -> tuple[int, IntakeRecord | Done]:
    """The record that ``data``, which lies at ``offset`` of its segment, begins with, and its size.

    Raises Damaged where there is none.
    """
    if _HEADER.size > len(data):
        raise Damaged("record header is torn", path=path, offset=offset)
    length, crc = _HEADER.unpack_from(data)
    end = _HEADER.size + length
    if length > CONTENT_MAX or end > len(data):
        raise Damaged("record is torn", path=path, offset=offset)
    content = data[_HEADER.size : end]
    if zlib.crc32(content) != crc:
        raise Damaged("record does not match its checksum", path=path, offset=offset)
    return end, _content(content, path, offset)


def _content(content: memoryview, path: str, offset: int) -> IntakeRecord | Done:
    try:
        if content[0] == _IS_DONE:
            return Done(_DONE.unpack(content)[1])
        kind, rq, arrived_at, signal, encoding, length = _REQUEST.unpack_from(content)
        if kind != _IS_REQUEST:
            raise Damaged(f"record of unknown kind {kind}", path=path, offset=offset)
        body_at = _REQUEST.size + length
        return IntakeRecord(
            rq,
            arrived_at,
            _SIGNALS[signal],
            _ENCODINGS[encoding],
            _peer_from_json(json.loads(bytes(content[_REQUEST.size : body_at]))),
            bytes(content[body_at:]),
        )
    except (struct.error, IndexError, ValueError) as error:
        raise Damaged(f"record cannot be read: {error}", path=path, offset=offset) from error


def _peer_to_json(peer: Peer) -> dict[str, Any]:
    told = {"host": peer.host, "port": peer.port, "run_id": peer.run_id, **peer.identity.as_payload()}
    return told | ({"hung_up": True} if peer.hung_up else {})


def _peer_from_json(meta: Any) -> Peer:
    if not isinstance(meta, dict):
        raise ValueError("its peer is not an object")  # noqa: TRY004 - damage, not a caller's mistake
    return Peer(
        meta.get("host"),
        meta.get("port"),
        meta.get("run_id"),
        Identity.from_payload(meta),
        meta.get("hung_up") is True,
    )
