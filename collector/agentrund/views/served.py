"""Whether a collector is at work on a root, by what its lock file says. Takes no lock: one could miss it."""

from __future__ import annotations

import os

import msgspec

from agentrund.formats import layout
from agentrund.model.errors import Damaged
from agentrund.views.folder import Root


def is_served(root: Root) -> bool:
    """Whether the process that the lock file names is there, or may be."""
    try:
        owner = msgspec.json.decode(root.read(f"{layout.STATE}/{layout.LOCK}"), type=dict[str, object])
        pid = owner["pid"]
    except (FileNotFoundError, Damaged, msgspec.MsgspecError, KeyError):
        return False
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # somebody else's
    return True
