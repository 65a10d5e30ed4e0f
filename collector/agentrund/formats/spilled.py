"""Reading what ``spill`` left behind: which values of a payload point to blobs, and how large those are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, TypeGuard

from agentrund.formats import layout
from agentrund.model.event import Json
from agentrund.model.run_state import is_number

REF: Final = re.compile(rf"{layout.BLOBS}/([0-9a-f]{{8,40}})\.txt")
"""The path of a blob, relative to its run's folder; the digits begin the SHA-1 of its content."""
_KEYS: Final = {"ref", "preview", "bytes"}


def is_ref(value: object) -> TypeGuard[str]:
    """Whether a value names a blob as we do; a payload may hold what only looks alike."""
    return isinstance(value, str) and REF.fullmatch(value) is not None


def pointer_of(value: Json) -> tuple[int, str] | None:
    """Size and path where ``value`` stands for a string in a blob, None for any other object."""
    ref = value.get("ref")
    if is_ref(ref) and value.keys() == _KEYS:
        return octets(value["bytes"]), ref
    return None


def pointers(payload: Json) -> Iterator[tuple[int, str]]:
    """Size and path of every blob a payload names."""
    ref = payload.get("text_ref")
    if is_ref(ref):
        yield octets(payload.get("bytes")), ref
    below: list[Any] = [value for value in payload.values() if value.__class__ in (dict, list)]
    while below:
        value = below.pop()
        if value.__class__ is dict and (found := pointer_of(value)) is not None:
            yield found
            continue
        below.extend(
            item
            for item in (value.values() if value.__class__ is dict else value)
            if item.__class__ in (dict, list)
        )


def preview_of(spilled: Json) -> str:
    """The beginning of what was moved to a blob."""
    preview = spilled.get("preview")
    return preview if isinstance(preview, str) else ""


def octets(value: object) -> int:
    """A stated size; 0 where a sender made one up that is no number."""
    return int(value) if is_number(value) else 0
