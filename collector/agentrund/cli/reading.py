"""What every reading command does first: find the root, then the run. No collector need be running."""

from __future__ import annotations

import os
from pathlib import Path

from agentrund.cli.options import existing_root
from agentrund.service import config, discovery, places
from agentrund.views.folder import Root, find_root


def open_root(flag: str | None) -> Root:
    """The root by flag, variable, configuration, ``./.runs``, or that of a running collector."""
    return find_root(existing_root(flag), Path.cwd(), _collector_root)


def _collector_root() -> Path | None:
    socket = places.find_socket(config.load().socket, os.environ)
    found = discovery.read(socket) if socket is not None else None
    return Path(found.root) if found is not None else None
