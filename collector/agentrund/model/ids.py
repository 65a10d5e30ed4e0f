"""Run ids and the mapping of session ids to safe file names."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

RUN_ID: Final = re.compile(r"[0-9]{8}_[0-9]{6}_[0-9a-f]{4,}")
_SAFE: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_NAME_MAX: Final = 200
"""Longest link name in bytes: file systems stop at 255, and a temporary name needs room beside it."""


def is_run_id(text: str) -> bool:
    """Whether ``text`` has the form of a run id (``YYYYMMDD_HHMMSS_hhhh``, four or more hex digits)."""
    return RUN_ID.fullmatch(text) is not None


def run_id_at(now: float, counter: int) -> str:
    """The run id for second ``now`` (UTC); ``counter`` grows within one second, so ids sort by creation."""
    stamp = datetime.fromtimestamp(int(now), tz=UTC).strftime("%Y%m%d_%H%M%S")
    return f"{stamp}_{counter:04x}"


def created_at(run_id: str) -> tuple[int, int]:
    """The second (epoch) and the number within it that a run id stands for; (0, 0) where it is none."""
    if not is_run_id(run_id):
        return 0, 0
    stamp, number = run_id[:15], run_id[16:]
    try:
        second = datetime.strptime(stamp, "%Y%m%d_%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return 0, 0
    return int(second.timestamp()), int(number, 16)


def link_name(session_id: str) -> str:
    """The file name of a session's link.

    Bytes outside ``[A-Za-z0-9._-]`` are percent-encoded, as are a leading dot or dash, so distinct
    ids never share a link and no id can leave the folder, hide, or look like an option. A name that
    would be too long for a file system ends in its SHA-256 instead.
    """
    raw = session_id.encode("utf-8", "surrogatepass")
    if not raw:
        return "%"
    name = "".join(
        chr(byte) if chr(byte) in _SAFE and not (i == 0 and byte in b".-") else f"%{byte:02X}"
        for i, byte in enumerate(raw)
    )
    if len(name) <= _NAME_MAX:
        return name
    # "%s" is no percent-encoding, so this form cannot meet an encoded name.
    return f"{name[:100]}%sha256-{sha256(raw).hexdigest()}"
