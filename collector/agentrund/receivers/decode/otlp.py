"""Export{Trace,Logs,Metrics}ServiceRequest bodies to items, one after the other, however they are written.

Decides what counts as an item and what is refused: a body that is no request raises Rejected, an
item that cannot be read becomes a BadItem. Knows no convention: what an item means is ``mapping``'s.

Both readers are generators that also yield None where the caller may let others run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from agentrund.model.errors import Rejected
from agentrund.model.otlp import Encoding, Item, Signal
from agentrund.receivers.decode import otlp_json, otlp_protobuf
from agentrund.receivers.decode.protobuf_wire import Malformed

_T = TypeVar("_T")
_MODULES: Final = {Encoding.PROTOBUF: otlp_protobuf, Encoding.JSON: otlp_json}


def check(signal: Signal, encoding: Encoding, body: bytes) -> Iterator[str | None]:
    """Of every item that ``decode`` will find bad, why. Raises Rejected where the body is no request."""
    return _read(_MODULES[encoding].check, signal, body)


def decode(signal: Signal, encoding: Encoding, body: bytes) -> Iterator[Item | None]:
    """The items of a request; ``i`` counts all of them, bad ones too. Raises Rejected as ``check`` does."""
    return _read(_MODULES[encoding].decode, signal, body)


def _read(reader: Callable[[Signal, bytes], Iterator[_T]], signal: Signal, body: bytes) -> Iterator[_T]:
    try:
        yield from reader(signal, body)
    except Malformed as error:
        raise Rejected("bad_otlp", f"not an Export{signal.capitalize()}ServiceRequest: {error}") from error
