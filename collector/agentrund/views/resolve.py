"""What a person typed for a run or an event: an id, a unique prefix, a session id, ``latest``, ``#seq``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from agentrund.formats import layout
from agentrund.model.errors import NoSuchRun, UsageError
from agentrund.model.ids import link_name
from agentrund.views.folder import Root

LATEST: Final = "latest"
_ANCHOR: Final = re.compile(r"(.*)#(.*)", re.DOTALL)
_NUMBER: Final = re.compile(r"[0-9]+")
_LISTED: Final = 10
"""How many matches of an ambiguous prefix are worth a person's eyes."""


@dataclass(frozen=True, slots=True)
class Target:
    """A run, and one of its events where one was named."""

    run_id: str
    seq: int | None = None


def resolve(root: Root, text: str) -> Target:
    """The run (and event) ``text`` names. Raises NoSuchRun, or UsageError."""
    run_id = _run(root, text)
    if run_id is not None:
        return Target(run_id)
    match = _ANCHOR.fullmatch(text)
    if match is not None:
        # A bare `#0016` means the newest run.
        run_id = _run(root, match[1] or LATEST)
        if run_id is not None:
            return Target(run_id, _seq(match[2]))
    raise NoSuchRun(
        f"no run `{text}` in {root.path}", hint="`agentrund runs` lists ids; a unique prefix is enough"
    )


def parse_anchor(text: str) -> int:
    """The seq of ``#0016`` or ``16``. Raises UsageError."""
    digits = text.removeprefix("#")
    if not digits.isdecimal():
        raise UsageError(f"`{text}` is no event", hint="write its anchor, such as '#0016'")
    return int(digits)


def _seq(text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise UsageError(f"`{text}` is no event number", hint="write its anchor, such as 'latest#0016'")
    return int(text)


def _run(root: Root, text: str) -> str | None:
    if text == LATEST:
        return root.link(layout.LATEST) or next(iter(root.run_ids()), None)
    if root.has_run(text):
        return text
    by_session = root.link(f"{layout.SESSIONS}/{link_name(text)}") if text else None
    return by_session or _by_prefix(root, text)


def _by_prefix(root: Root, prefix: str) -> str | None:
    matches = [run_id for run_id in root.run_ids() if run_id.startswith(prefix)] if prefix else []
    if len(matches) > 1:
        shown = ", ".join(matches[:_LISTED]) + (", …" if len(matches) > _LISTED else "")
        raise UsageError(f"`{prefix}` matches {len(matches)} runs: {shown}", hint="type more of the id")
    return matches[0] if matches else None
