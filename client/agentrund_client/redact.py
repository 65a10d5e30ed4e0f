"""Secrets out of values, lines and command lines: the one redactor of client and collector.

Keys: what stands under a key that names a secret (any case, any depth) is masked. Text: what looks like a
credential is masked wherever it stands, JSON inside of text included. Token *counters* are no secrets.

Every function takes `found`, where it counts what it masked by rule: `key` for keys, else the rule's name.
"""

from __future__ import annotations

import json
import re
from functools import cache

from agentrund_client._secret_keys import KEY_LETTERS, is_folder, is_secret_key
from agentrund_client.redaction_rules import MASK, RULES, Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Found = dict[str, int]

__all__ = ["MASK", "is_secret_key", "redact", "redact_argv", "redact_line", "redact_text"]

_KEY = "key"


@cache
def _suspicious() -> re.Pattern[bytes]:
    """One scan decides whether a line needs the slow path at all."""
    letters = {*KEY_LETTERS, *(letters for rule in RULES for letters in rule.letters)}
    return re.compile(b"(?i)" + b"|".join(re.escape(one.encode()) for one in sorted(letters)))


def redact_line(line: bytes, found: Found | None = None) -> bytes:
    """One frame's line with its secrets masked; a line without any comes back as it is, byte for byte."""
    if _suspicious().search(line) is None:
        return line
    frame = json.loads(line)
    masked = redact(frame, found)
    if masked == frame:
        return line
    return json.dumps(masked, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def redact(value: Any, found: Found | None = None) -> Any:
    """A copy of plain JSON values with its secrets masked."""
    if isinstance(value, str):
        return redact_text(value, found)
    if isinstance(value, dict):
        named = value.get("name", value.get("key"))
        secret = named if isinstance(named, str) and is_secret_key(named) else None
        return {
            key: _mask(item, secret, found) if key == "value" and secret else _redact_item(key, item, found)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return _redact_list(value, found)
    return value


def _redact_list(value: list[Any], found: Found | None) -> list[Any]:
    if not all(isinstance(item, str) for item in value):
        return [redact(item, found) for item in value]
    if len(value) == 2 and is_secret_key(value[0]) and " " not in value[0]:  # a header as a pair  # noqa: PLR2004
        return [value[0], _mask(value[1], value[0], found)]
    masked = redact_argv(value, found)
    whole = "".join(value)
    return _split(redact_text(whole, found), whole, masked) if masked == value else masked


def _split(masked: str, whole: str, pieces: list[str]) -> list[str]:
    """The pieces of a text of which a secret may lie across two: what differs is masked in each of them."""
    if masked == whole:
        return pieces
    start = next(n for n, (a, b) in enumerate(zip(masked, whole, strict=False)) if a != b)
    back = next(n for n, (a, b) in enumerate(zip(reversed(masked), reversed(whole), strict=False)) if a != b)
    end, at, out = len(whole) - back, 0, []
    for piece in pieces:
        first, last = max(start - at, 0), min(end - at, len(piece))
        out.append(piece if first >= last else piece[:first] + MASK + piece[last:])
        at += len(piece)
    return out


def redact_text(text: str, found: Found | None = None) -> str:
    """The text with every recognised credential masked."""
    lowered = text.lower()
    for rule in RULES:
        if any(letters in lowered for letters in rule.letters):
            text = _masked(rule, text, found)
    return text


def _masked(rule: Rule, text: str, found: Found | None) -> str:
    def mask(match: re.Match[str]) -> str:
        if MASK in match[0] or not rule.is_secret(match):
            return match[0]
        if found is not None:
            found[rule.name] = found.get(rule.name, 0) + 1
        if "value" not in match.re.groupindex:
            return MASK
        start, end = match.start("value") - match.start(), match.end("value") - match.start()
        return match[0][:start] + MASK + match[0][end:]

    return _compiled(rule.pattern).sub(mask, text)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def redact_argv(argv: Sequence[str], found: Found | None = None) -> list[str]:
    """A command line with the values of secret-looking options masked: `--opt=v`, `--opt v`, `OPT=v`."""
    result: list[str] = []
    mask_next = False
    for word in argv:
        option, equals, given = word.partition("=")
        if mask_next and not word.startswith("--"):
            result.append(_mask(word, _KEY, found))
        elif equals and given and " " not in option and is_secret_key(option):
            result.append(f"{option}={_mask(given, option, found)}")
        else:
            result.append(redact_text(word, found))
        mask_next = not equals and word.startswith("-") and is_secret_key(word)
    return result


def _redact_item(key: str, item: Any, found: Found | None) -> Any:
    return _mask(item, key, found) if isinstance(key, str) and is_secret_key(key) else redact(item, found)


def _mask(item: Any, key: str, found: Found | None) -> Any:
    """All text below a secret's key is masked, and every number but those of tokens."""
    if isinstance(item, dict):
        return {inner: _mask(part, key, found) for inner, part in item.items()}
    if isinstance(item, list):
        return [_mask(part, key, found) for part in item]
    if item is None or isinstance(item, bool) or item in ("", MASK) or is_folder(key, item):
        return item
    if isinstance(item, int | float) and "token" in key.lower():
        return item
    if found is not None:
        found[_KEY] = found.get(_KEY, 0) + 1
    return MASK
