"""Frames to bytes and back. One frame is one line of JSON in UTF-8; the counter `n` always comes first.

orjson is used where it is installed, imported with the first frame and not with the package.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable

from agentrund_client._clean import clean, has_nonfinite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Frame = dict[str, "Any"]

# How every event line begins; the spool finds its way by it.
EVENT_PREFIX = b'{"n":'
LOST_PREFIX = b'{"op":"lost",'
_NO_FLOATS = frozenset({str, int, bool})


def encode(frame: Frame) -> bytes:
    """A frame, whatever its values are, as one JSON object without newline."""
    try:
        encoded = _dumps(frame)
    except Exception:  # noqa: BLE001 - whatever the value did, the clean copy has no surprises left
        return _plain_dumps(clean(frame))
    # orjson writes NaN as null, silently. To look for it costs as much as encoding: flat payloads are spared.
    if not _is_flat(frame.get("payload")) and b"null" in encoded and has_nonfinite(frame):
        return _plain_dumps(clean(frame))
    return encoded


def number(n: int, body: bytes) -> bytes:
    """The whole line of an event that `encode` has encoded without its `n`."""
    return b"".join((b'{"n":%d,' % n, body[1:], b"\n"))


def encode_frame(frame: Frame) -> bytes:
    """A control frame as one whole line."""
    return encode(frame) + b"\n"


def lost_line(first: int, last: int) -> bytes:
    """The frame that admits to the loss of events `first` to `last`."""
    return b'{"op":"lost","from":%d,"to":%d}\n' % (first, last)


def decode(line: bytes) -> Frame:
    """A frame the collector sent; `{}` for anything that is not a JSON object."""
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return frame if isinstance(frame, dict) else {}


def last_number(line: bytes) -> int:
    """The highest `n` an event or lost line speaks for; 0 for every other line."""
    if line.startswith(EVENT_PREFIX):
        return int(line[5 : line.index(b",", 5)])
    if line.startswith(LOST_PREFIX):
        return int(json.loads(line)["to"])
    return 0


def fitting(lines: bytes, max_line: int) -> bytes:
    """Whole lines, those that are too long for the collector replaced by an admission of their loss."""
    if len(lines) <= max_line:
        return lines
    parts = lines.splitlines(keepends=True)
    return b"".join(part if len(part) <= max_line else lost_line(*(last_number(part),) * 2) for part in parts)


def _is_flat(payload: Any) -> bool:
    """Whether nothing in there can be a float: strings, integers and truth values only."""
    if type(payload) is not dict:
        return False
    for value in payload.values():  # noqa: SIM110 - a generator costs three times as much
        if type(value) not in _NO_FLOATS:
            return False
    return True


def _plain_dumps(frame: Frame) -> bytes:
    return json.dumps(frame, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _first_dumps(frame: Frame) -> bytes:
    """Look for orjson with the first frame, not with the import of the package."""
    global _dumps  # noqa: PLW0603 - found once per process
    _dumps = _orjson_dumps() or _plain_dumps
    return _dumps(frame)


def _orjson_dumps() -> Callable[[Frame], bytes] | None:
    try:
        import orjson  # noqa: PLC0415 - optional, and not part of the import cost
    except Exception:  # noqa: BLE001 - missing or broken, it is all the same
        return None
    # Dates and dataclasses go through `clean`, so that they look alike with and without orjson.
    option = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
    return functools.partial(orjson.dumps, option=option)


_dumps: Callable[[Frame], bytes] = _first_dumps
