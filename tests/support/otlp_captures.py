"""Recorded OTLP requests: where they are, what is in them, and what a person would want to see of them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest

from agentrund.model.event import Json
from agentrund.model.otlp import Encoding, Signal
from agentrund.receivers.decode.otlp import decode

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
    gzip: bool = False


@dataclass(frozen=True)
class Capture:
    """One program's requests, in order of arrival."""

    name: str
    requests: list[Request]
    expect: dict[str, Any]

    @cached_property
    def processes(self) -> dict[int, int]:
        """Connections, and the number of the process each was of.

        A process names itself in its resource: by an id of its own or its pid, else only by its service's name.
        """
        named: dict[str, int] = {}
        found: dict[int, int] = {}
        for request in self.requests:
            for item in decode(request.signal, request.encoding, request.body):
                if item is not None and request.port not in found:
                    found[request.port] = named.setdefault(_named(item.resource.attributes), len(named) + 1)
        return found


def names() -> list[str]:
    """All captures there are."""
    folder = captures_folder()
    return [] if folder is None else sorted(path.parent.name for path in folder.glob("*/manifest.json"))


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
            r.get("content_encoding") == "gzip",
        )
        for r in manifest["requests"]
    ]
    return Capture(name, requests, manifest["expect"])


def _named(resource: Json) -> str:
    keys = ("service.instance.id", "process.pid", "service.name")
    return next((f"{key} {resource[key]}" for key in keys if key in resource), "")
