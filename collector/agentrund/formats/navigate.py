"""NAVIGATE.md: the map that lies in every root. Its text is packaged beside this module."""

from __future__ import annotations

from importlib import resources


def text() -> bytes:
    """The file, the same for every root of this version."""
    return resources.files("agentrund.formats").joinpath("NAVIGATE.md").read_bytes()
