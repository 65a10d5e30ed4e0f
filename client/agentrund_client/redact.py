"""Secrets out of values, lines and command lines: the one redactor of client and collector.

Keys: a key that contains one of `SECRET_KEYS` (any case, `-` and `_` alike) has its value masked at any
depth. Text: patterns of well-known credentials are masked wherever they stand. Token *counters* are no
secrets: a number under a token key (`max_tokens`, `prompt_tokens`) stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MASK = "__REDACTED__"
SECRET_KEYS = (
    "api_key",
    "apikey",
    "authorization",
    "cookie",
    "password",
    "passwd",
    "secret",
    "token",
    "private_key",
)

_ASSIGNED = r"api[_-]?key|authorization|password|passwd|pwd|secret|token|private[_-]?key|access[_-]?key"
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", MASK),
        (r"\b(?:sk|rk|pk)[-_][A-Za-z0-9_-]{16,}", MASK),  # OpenAI, Anthropic, Stripe
        (r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,})", MASK),
        (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", MASK),
        (r"\bAIza[0-9A-Za-z_-]{30,}", MASK),
        (r"\b(?:xox[abeprs]-[A-Za-z0-9-]{10,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,})", MASK),
        (r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", MASK),
        (r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{16,}", rf"\1 {MASK}"),
        (r"(\b[a-z][a-z0-9+.-]*://[^\s:/@\"']*:)[^\s/@\"']+@", rf"\1{MASK}@"),
        (rf"(?i)((?:{_ASSIGNED})[\"']?\s*[:=]\s*[\"']?)(?!{MASK})[^\s\"',;&{{}}\[\]\\]{{8,}}", rf"\1{MASK}"),
    )
)
# One cheap scan decides whether a line needs the slow path at all.
_SUSPICIOUS = re.compile(
    rb"(?i)key|secret|token|passw|pwd|authori|cookie|bearer|basic |"
    rb"\b[srp]k[-_]|gh[pousr]_|github_pat|glpat-|AKIA|ASIA|AIza|xox[abeprs]-|hf_|npm_|eyJ|://"
)


def redact_line(line: bytes) -> bytes:
    """One frame's line with its secrets masked; a line without any comes back as it is, byte for byte."""
    if _SUSPICIOUS.search(line) is None:
        return line
    frame = json.loads(line)
    masked = redact(frame)
    if masked == frame:
        return line
    return json.dumps(masked, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def redact(value: Any) -> Any:
    """A copy of plain JSON values with its secrets masked."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        return {key: _redact_item(key, item) for key, item in value.items()}
    if isinstance(value, list):
        return (
            redact_argv(value) if all(isinstance(item, str) for item in value) else [redact(v) for v in value]
        )
    return value


def redact_text(text: str) -> str:
    """The text with every recognised credential masked."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def redact_argv(argv: Sequence[str]) -> list[str]:
    """A command line with the values of secret-looking options masked: `--opt=v`, `--opt v`, `OPT=v`."""
    result: list[str] = []
    mask_next = False
    for word in argv:
        option, equals, _ = word.partition("=")
        if mask_next and not word.startswith("--"):
            result.append(MASK)
        elif equals and _is_secret_option(option):
            result.append(f"{option}={MASK}")
        else:
            result.append(redact_text(word))
        mask_next = not equals and word.startswith("-") and _is_secret_option(word)
    return result


def is_secret_key(key: str) -> bool:
    """Whether a value under this key counts as a secret."""
    plain = key.lower().replace("-", "_")
    return any(word in plain for word in SECRET_KEYS)


def _redact_item(key: str, item: Any) -> Any:
    if not is_secret_key(key):
        return redact(item)
    return _mask(item, counters="token" in key.lower())


def _mask(item: Any, *, counters: bool) -> Any:
    if item is None or isinstance(item, bool) or (counters and isinstance(item, int | float)):
        return item
    if isinstance(item, dict):
        return {key: _mask(part, counters=counters) for key, part in item.items()}
    if isinstance(item, list):
        return [_mask(part, counters=counters) for part in item]
    return MASK


def _is_secret_option(option: str) -> bool:
    """`--max-tokens` and `--tokenizer` are no secrets: only whole words of an option's name count."""
    words = option.lower().replace("_", "-").strip("-").split("-")
    joined = "-".join(words)
    if any(pair in joined for pair in ("api-key", "private-key", "access-key", "secret-key")):
        return True
    return any(word in _SECRET_WORDS for word in words)


_SECRET_WORDS = frozenset(
    {
        "token",
        "secret",
        "password",
        "passwd",
        "pwd",
        "apikey",
        "authorization",
        "cookie",
        "credential",
        "credentials",
    }
)
