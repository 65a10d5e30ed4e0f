"""Recorded OTLP requests: where they are, what is in them, and what a person would want to see of them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agentrund.model.otlp import Encoding, Signal

_ROOT = Path(__file__).parents[2]


@cache
def captures_folder() -> Path | None:
    """The folder of the captures, None where they are not here."""
    root = os.environ.get("AGENTRUND_FIXTURES") or _ROOT.parent / "shared" / "fixtures"
    folder = Path(root) / "otlp"
    return folder if folder.is_dir() else None


@dataclass(frozen=True)
class Request:
    """One recorded request."""

    signal: Signal
    encoding: Encoding
    body: bytes
    at: float
    port: int


@dataclass(frozen=True)
class Capture:
    """One program's requests, in order of arrival."""

    name: str
    requests: list[Request]
    expect: dict[str, Any]


def load(name: str) -> Capture:
    """A capture by name; skips the test where the captures are not here."""
    folder = captures_folder()
    if folder is None:
        pytest.skip("the recorded OTLP captures are not here (AGENTRUND_FIXTURES)")
    manifest = json.loads((folder / name / "manifest.json").read_text())
    requests = [
        Request(
            Signal(r["signal"]),
            Encoding.JSON if r["file"].endswith(".json") else Encoding.PROTOBUF,
            (folder / name / r["file"]).read_bytes(),
            r["at_s"],
            int(r["conn"]),
        )
        for r in manifest["requests"]
    ]
    return Capture(name, requests, manifest["expect"])
