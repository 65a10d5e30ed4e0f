"""A conversation as the run folder shows it: a count, a text, and the list itself."""

from __future__ import annotations

from agentrund_client._clean import clean, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def prompt_keys(messages: Any, text: Any) -> dict[str, Any]:
    """The keys of `llm.prompt` for what the caller calls its messages: a number, a list, or plain text."""
    keys: dict[str, Any] = {}
    if isinstance(messages, int):
        keys["messages"] = messages
    elif isinstance(messages, list | tuple):
        plain = clean(messages)
        keys["messages"] = len(plain)
        keys["input"] = plain
        text = transcript(plain) if text is None else text
    elif messages is not None:
        keys["messages"] = 1
        text = messages if text is None else text
    if text is not None:
        keys["text"] = text_of(text)
    return keys


def transcript(messages: list[Any]) -> str:
    """`[role]`, the content below it, a blank line between messages."""
    return "\n\n".join(_message(message) for message in messages)


def _message(message: Any) -> str:
    if not isinstance(message, dict):
        return text_of(message) or ""
    content = _content(message.get("content"))
    # What is not content (tool calls, names, ids) belongs to the conversation too.
    rest = {
        key: value for key, value in message.items() if key not in {"role", "content"} and value is not None
    }
    parts = [f"[{message.get('role', 'message')}]", content, text_of(rest) if rest else ""]
    return "\n".join(part for part in parts if part)


def _content(content: Any) -> str:
    if not isinstance(content, list):
        return text_of(content) or ""
    return "\n".join(_block(block) for block in content)


def _block(block: Any) -> str:
    if isinstance(block, dict) and isinstance(block.get("text"), str):
        return str(block["text"])
    return text_of(block) or ""
