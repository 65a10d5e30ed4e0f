"""The attributes of an item while it is being mapped: what is used is taken out, what is left is kept."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from agentrund.model.event import Json
from agentrund.receivers.decode import strict_json

PARSE_MAX: Final = 512 << 10
"""Longer JSON text stays text: reading it would hold everybody else up."""
PARSE_LEVELS: Final = strict_json.MAX_DEPTH - 50
"""Deeper JSON text stays text: it lands some levels down in a payload that has to be read again."""
PATH_MAX: Final = 32
"""Parts of a flattened key that are put together; a longer key stays a key."""
_INDEX_DIGITS: Final = 9

_DECODE: Final = msgspec.json.Decoder().decode


class Attributes:
    """A copy of an item's attributes to take from."""

    def __init__(self, values: Json) -> None:
        self.rest = dict(values)

    def take(self, *keys: str) -> Any:
        """The first attribute of ``keys`` that says something; the others stay."""
        for key in keys:
            value = self.rest.get(key)
            if value is not None and value != "":
                del self.rest[key]
                return value
        return None

    def look(self, *keys: str) -> Any:
        """As ``take``, but leaves it there."""
        return next((v for k in keys if (v := self.rest.get(k)) is not None and v != ""), None)

    def take_text(self, *keys: str) -> str | None:
        """The first attribute of ``keys``, as text."""
        value = self.take(*keys)
        return value if value is None or isinstance(value, str) else as_text(value)

    def take_count(self, *keys: str) -> int | None:
        """The first attribute of ``keys`` that is a whole number of things."""
        for key in keys:
            value = self.rest.get(key)
            if (
                isinstance(value, (int, float))
                and not isinstance(value, bool)
                and value >= 0
                and value == int(value)
            ):
                del self.rest[key]
                return int(value)
        return None

    def take_amount(self, *keys: str) -> float | None:
        """The first attribute of ``keys`` that is a number."""
        for key in keys:
            value = self.rest.get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                del self.rest[key]
                return value
        return None

    def take_list(self, prefix: str) -> list[Json]:
        """Flattened objects (``prefix.0.role``, ``prefix.0.tools.1.id``) put together again, in order."""
        keys = [key for key in self.rest if key.startswith(prefix)]
        if not keys:
            return []
        found: dict[str, Any] = {}
        for key in keys:
            path = key[len(prefix) :].split(".")
            if _is_index(path[0]) and 1 < len(path) <= PATH_MAX:
                _put(found, path, self.rest.pop(key))
        return [entry for entry in _as_list(found) if isinstance(entry, dict)]


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        below = tree.setdefault(name, {})
        if not isinstance(below, dict):
            below = tree[name] = {"": below}
        tree = below
    at = tree.get(path[-1])
    if isinstance(at, dict):
        at[""] = value
    else:
        tree[path[-1]] = value


def _is_index(name: str) -> bool:
    return name.isdecimal() and len(name) <= _INDEX_DIGITS


def _as_list(tree: Any) -> Any:
    """Objects whose keys are all numbers become lists, at every level."""
    if not isinstance(tree, dict):
        return tree
    if all(map(_is_index, tree)):
        return [_as_list(tree[key]) for key in sorted(tree, key=int)]
    return {key: _as_list(value) for key, value in tree.items()}


def parse(value: Any) -> Any:
    """What JSON text says; anything else, and text that is no JSON or too long or deep, as it is."""
    if not isinstance(value, str) or len(value) > PARSE_MAX or value[:1] not in "{[":
        return value
    try:
        found = _DECODE(value)
    except (msgspec.MsgspecError, RecursionError):
        try:
            found, _ = strict_json.repair(value.encode())
        except ValueError:
            return value
    return found if strict_json.depth_within(found, PARSE_LEVELS) else value


def as_text(value: Any) -> str:
    """A value as text: text as it is, the rest as JSON."""
    return value if isinstance(value, str) else strict_json.encode(value).decode()
