"""Foreign text made harmless for a file that people and line tools read.

Decides which characters never reach agent.logs and outline.md raw, which lines inside a block could be
taken for something the collector wrote, and what Markdown would make live. Must not know what the
text is or where it goes.
"""

from __future__ import annotations

import re
from typing import Final

_NEWLINE: Final = "⏎"
# DEL and C1; Arabic letter mark and the direction marks; line and paragraph separators with the bidi
# embeddings and overrides; the bidi isolates.
_HARMFUL: Final = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_IN_LINE: Final = re.compile(rf"[\x00-\x1f{_HARMFUL}]")
_IN_JSON: Final = re.compile(rf"[{_HARMFUL}]")
_IN_BLOCK: Final = re.compile(rf"[\x00-\x08\x0b-\x1f{_HARMFUL}]")
# Digits as ripgrep's \d has them: any script's. Read over "\n" + block, so the first line counts too.
_FORGEABLE: Final = re.compile(r"\n(?=#\d|[┌└]─|==== attempt|---- attempt)")

# The same questions asked of UTF-8 bytes, several times faster. Characters stay whole when the harmless
# bytes between them are taken out.
_HARMLESS: Final = bytes({0x09, 0x0A, *range(0x20, 0x7F)})
_HARMFUL_BYTES: Final = re.compile(
    rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]"
)
_FORGEABLE_BYTES: Final = re.compile(rb"\n(?=#[^\x00-\x2f\x3a-\x7f]|\xe2\x94|==== attempt|---- attempt)")

_MARKDOWN: Final = re.compile(r"[<`\[]|\\(?=[!-/:-@\[-`{-~])|&(?=#?\w+;)")


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    return f"\\x{ord(char):02x}" if char <= "\xff" else f"\\u{ord(char):04x}"


def one_line(text: str) -> str:
    """``text`` with ``⏎`` for newlines and escapes for control characters."""
    # isprintable is the cheap test; it also refuses harmless characters, which the pattern lets through.
    if text.isprintable():
        return text
    # Of every page the common ones by themselves: a pattern's call for each line of a long text is slow.
    return _IN_LINE.sub(_escaped, text.replace("\n", _NEWLINE).replace("\t", r"\x09"))


def json_text(data: bytes) -> bytes:
    """JSON text that a terminal shows: the same values, with escapes for what it would act on.

    Line breaks between documents stay; those within strings, and all other C0, JSON escapes itself.
    """
    if data.isascii() and b"\x7f" not in data:
        return data
    return _IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", data.decode("utf-8", "replace")).encode()


def markdown(text: str, limit: int) -> str:
    """At most ``limit`` characters as one line that Markdown shows as text: no HTML, links, images, code."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return _MARKDOWN.sub(_marked, one_line(text))


def _marked(match: re.Match[str]) -> str:
    char = match[0]
    return {"<": "&lt;", "&": "&amp;"}.get(char, "\\" + char)


def block(text: str) -> bytes:
    """``text`` as the inside of a frame: lines and tabs kept, controls escaped, forgeable lines indented."""
    return encoded_block(text, text.encode())


def encoded_block(text: str, data: bytes) -> bytes:
    """As ``block``, for a caller that has ``text`` in UTF-8 already."""
    rest = data.translate(None, _HARMLESS)
    harmful = bool(rest) and _HARMFUL_BYTES.search(rest) is not None
    if not harmful and _FORGEABLE_BYTES.search(b"\n" + data) is None:
        return data
    return _FORGEABLE.sub("\n ", "\n" + _IN_BLOCK.sub(_escaped, text))[1:].encode()
