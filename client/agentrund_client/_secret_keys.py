"""Which names are names of secrets: of keys, options, headers and variables."""

from __future__ import annotations

import re
from functools import lru_cache

_SECRET_WORDS = ("authorization", "cookie", "password", "passwd", "passphrase", "secret", "credential")
_SECRET_PAIRS = (
    "apikey",
    "privatekey",
    "accesskey",
    "secretkey",
    "accountkey",
    "authkey",
    "signingkey",
    "encryptionkey",
    "pwd",
)
KEY_LETTERS = (*_SECRET_WORDS, "token", "key", "pwd")
"""One of them is in every name of a secret, in upper or lower case."""
_COUNTS = (
    *(
        "max",
        "min",
        "num",
        "n",
        "count",
        "counts",
        "total",
        "sum",
        "avg",
        "limit",
        "budget",
        "remaining",
        "rate",
    ),
    *("prompt", "completion", "input", "output", "cached", "cache", "reasoning", "thinking", "usage", "used"),
    *(
        "audio",
        "image",
        "text",
        "context",
        "new",
        "per",
        "length",
        "len",
        "size",
        "window",
        "details",
        "type",
    ),
)
_OTHERS = (
    *("stop", "eos", "bos", "pad", "unk", "sep", "cls", "mask", "special", "first", "last", "ids"),
    *("next", "prev", "previous", "page", "continuation"),
)
_NO_SECRET = frozenset((*_COUNTS, *_OTHERS))
"""Beside `token` they say that it is none that opens anything: one of a model's, or a place in a list."""
_WORDS = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def is_folder(key: str, value: object) -> bool:
    """Whether `PWD` is what shells mean by it: the folder one is in."""
    return key.lower() in ("pwd", "oldpwd") and isinstance(value, str) and value[:1] in ("/", "~")


@lru_cache(maxsize=4096)
def is_secret_key(key: str) -> bool:
    """Whether what stands under a key is a secret. `max_tokens`, `tokenizer` and their like are none."""
    words = [word.lower() for word in _WORDS.findall(key)]
    joined = "".join(words)
    if any(pair in joined for pair in _SECRET_PAIRS):
        return True
    if any(plain in word for word in words for plain in _SECRET_WORDS):
        return True
    tokens = [word for word in words if "token" in word and not word.startswith("tokeni")]
    return bool(tokens) and _NO_SECRET.isdisjoint(words) and words != ["tokens"]
