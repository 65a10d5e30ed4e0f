"""A whole JSON document for people and jq: indented, UTF-8, one trailing newline.

Decides the spelling of analytics.json, meta.json and of arguments shown in agent.logs, nothing else.
"""

from __future__ import annotations

from typing import Any

import msgspec
import orjson


def encode(value: Any) -> bytes:
    """``value`` indented by two, with a newline at its end."""
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        # orjson stops at 64-bit integers; msgspec writes any.
        return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
