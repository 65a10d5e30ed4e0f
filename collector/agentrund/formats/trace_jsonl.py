"""trace.jsonl: one record a line, strict JSON, keys in the seed's order, ``src`` last where present.

The writer splices a clean payload's own bytes into the line; the reader keeps integers of any size.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
import orjson

from agentrund.model.errors import Damaged
from agentrund.model.event import Json, Record

_NULL: Final = b"null"


def millis(ts: float) -> int:
    """Epoch milliseconds of ``ts``; the one place that rounds."""
    return round(ts * 1000)


def encode(record: Record) -> bytes:
    """The line of a record, newline included. ``record.raw`` is used for the payload where given."""
    seconds, fraction = divmod(millis(record.ts), 1000)
    payload = record.raw if record.raw is not None else dump_payload(record.payload)
    line = b'{"run_id":"%b","seq":%d,"attempt":%d,"ts":%d.%03d,"iso":"%b","type":%b,"name":%b,' % (
        record.run_id.encode(),
        record.seq,
        record.attempt,
        seconds,
        fraction,
        record.iso.encode(),
        orjson.dumps(record.type),
        _NULL if record.name is None else orjson.dumps(record.name),
    )
    line += b'"parent_seq":%b,"status":%b,"dur_ms":%b,"payload":%b' % (
        _NULL if record.parent_seq is None else b"%d" % record.parent_seq,
        _NULL if record.status is None else orjson.dumps(record.status),
        _NULL if record.dur_ms is None else b"%d" % record.dur_ms,
        payload,
    )
    if record.src is None:
        return line + b"}\n"
    return line + b',"src":' + dump_payload(record.src) + b"}\n"


def dump_payload(payload: Json) -> bytes:
    """A payload as compact JSON. The payload must be clean (see ``formats.clean``)."""
    try:
        return orjson.dumps(payload)
    except TypeError:
        # orjson stops at 64-bit integers; msgspec writes any.
        return msgspec.json.encode(payload)


_Integer = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""What every JSON reader can count with, and a float can hold."""


_LAST_TS: Final = 253_402_300_799
"""The last second of the year 9999."""


class _Line(msgspec.Struct):
    """What a line must hold; unknown keys pass."""

    run_id: str
    seq: _Integer
    attempt: _Integer
    ts: Annotated[float, msgspec.Meta(ge=0, le=_LAST_TS)]
    type: str
    iso: str = ""
    name: str | None = None
    parent_seq: _Integer | None = None
    status: str | None = None
    dur_ms: _Integer | None = None
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    src: dict[str, Any] | None = None


_DECODER: Final = msgspec.json.Decoder(_Line)


def decode(line: bytes, *, path: str = "trace.jsonl", offset: int = 0) -> Record:
    """The record of one line. Raises ``Damaged`` with ``path`` and ``offset`` where it is none."""
    try:
        if not line.isascii():
            line.decode()  # the decoder passes over bad UTF-8 in keys it does not know
        got = _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(
            f"not a trace record: {error}",
            path=path,
            offset=offset,
            hint="`agentrund verify` lists every damage of the run",
        ) from error
    return Record(
        run_id=got.run_id,
        seq=got.seq,
        attempt=got.attempt,
        ts=got.ts,
        iso=got.iso,
        type=got.type,
        name=got.name,
        parent_seq=got.parent_seq,
        status=got.status,
        dur_ms=got.dur_ms,
        payload=got.payload,
        src=got.src,
    )
