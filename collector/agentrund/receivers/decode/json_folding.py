"""JSON text nested too deeply for its readers: what lies too deep becomes a string that holds its own text.

Works on text and without recursion, so the depth of the text is no limit. Knows nothing but strings and
brackets: whether the text is JSON is judged by whoever parses it afterwards.
"""

from __future__ import annotations

import json
import re
from typing import Final

# Strings are stepped over whole, an unended one to the end of the text; possessive, so nothing is read twice.
_TOKENS: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]++|[\]}]++', re.DOTALL).finditer


def folded(text: str, levels: int) -> tuple[str, int]:
    """``text`` with every array and object below ``levels`` as a string, and how many of them there were."""
    parts: list[str] = []
    depth = taken = count = 0
    begin = -1
    for token in _TOKENS(text):
        at, end = token.span()
        if text[at] in "[{":
            depth += end - at
            if begin < 0 and depth > levels:
                begin = end - (depth - levels)
        elif text[at] != '"':
            if begin >= 0 and depth - (end - at) <= levels:
                stop = at + depth - levels
                parts += (text[taken:begin], json.dumps(text[begin:stop], ensure_ascii=False))
                taken, begin, count = stop, -1, count + 1
            depth -= end - at
    parts.append(text[taken:])
    return "".join(parts), count
