"""Frames to bytes and back. One frame is one line of JSON in UTF-8; the counter `n` always comes first.

orjson is used where it is installed, imported with the first frame and not with the package.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from agentrund_client._clean import clean, has_nonfinite

Frame = dict[str, Any]

# How every event line begins; the spool finds its way by it.
EVENT_PREFIX = b'{"n":'
LOST_PREFIX = b'{"op":"lost",'


def encode_event(event: Frame) -> bytes:
    """An event without its `n`: everything after the opening brace, newline included."""
    return _encode(event)[1:] + b"\n"


def number(n: int, body: bytes) -> bytes:
    """The whole line of an event encoded by `encode_event`."""
    return b'{"n":%d,%b' % (n, body)


def encode_frame(frame: Frame) -> bytes:
    """A control frame as one whole line."""
    return _encode(frame) + b"\n"


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


def _encode(frame: Frame) -> bytes:
    try:
        encoded = _fast_dumps()(frame)
    except Exception:  # noqa: BLE001 - whatever the value did, the clean copy has no surprises left
        return _plain_dumps(clean(frame))
    if b"null" in encoded and has_nonfinite(frame):
        return _plain_dumps(clean(frame))
    return encoded


def _plain_dumps(frame: Frame) -> bytes:
    return json.dumps(frame, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _fast_dumps() -> Callable[[Frame], bytes]:
    global _dumps  # noqa: PLW0603 - found once per process
    if _dumps is None:
        _dumps = _orjson_dumps() or _plain_dumps
    return _dumps


def _orjson_dumps() -> Callable[[Frame], bytes] | None:
    try:
        import orjson  # noqa: PLC0415 - optional, and not part of the import cost
    except Exception:  # noqa: BLE001 - missing or broken, it is all the same
        return None
    # Dates and dataclasses go through `clean`, so that they look alike with and without orjson.
    option = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME

    def dumps(frame: Frame) -> bytes:
        return orjson.dumps(frame, option=option)

    return dumps


_dumps: Callable[[Frame], bytes] | None = None
