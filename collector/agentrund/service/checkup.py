"""``agentrund doctor``: what stands between an agent and its run folder, looked at from outside.

Decides what is looked at and in which order. Every check gives what it found, good or bad, and what to do;
none changes anything, and none fails because there is no collector, or no root yet.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from agentrund import __version__
from agentrund.formats import layout
from agentrund.model.errors import AgentrundError, Damaged
from agentrund.service import ask, check_machine, check_ports, check_wire, places
from agentrund.service.check import NOTE, OK, PROBLEM, Check
from agentrund.service.config import Settings
from agentrund.views.folder import Root

_START: Final = "start it with `agentrund serve`"
_ANYBODY: Final = stat.S_IWOTH
_GROUP: Final = stat.S_IWGRP


class Checkup:
    """One look at a root and its collector; ``wire`` is what that has counted, once it is known."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self._status: dict[str, Any] | None = None
        self.wire: dict[str, Any] = {}

    def checks(self) -> Iterator[Check]:
        """Everything, the nearest to an agent first."""
        socket = (
            self._settings.socket
            or ask.holder(self._settings.root)
            or places.find_socket(None, self._environ)
        )
        if socket is None:
            yield Check("socket", PROBLEM, "no collector is running", _START)
        else:
            yield self._socket(socket)
            yield from self._collector(socket)
        yield from check_ports.ports(self._settings, self._status)
        yield from check_ports.environment(self._environ, self._settings, self._status)
        root = Path(self._status["root"]) if self._status is not None else self._settings.root
        yield from check_machine.root(root)
        yield from check_machine.limits(self._status)
        yield from check_machine.spool(running=self._status is not None)
        self.wire = self._status.get("wire") or {} if self._status is not None else _stored_wire(root)
        yield from check_wire.checks(self.wire)

    def _socket(self, path: Path) -> Check:
        """Who may connect, by the socket's modes."""
        try:
            info = path.lstat()
        except OSError as error:
            return Check("socket", PROBLEM, f"{path}: {error.strerror}", _START)
        if not stat.S_ISSOCK(info.st_mode):
            return Check(
                "socket", PROBLEM, f"{path} is not a socket", "move it away, or choose another --socket"
            )
        who = f"uid {info.st_uid} and root"
        if info.st_mode & _GROUP:
            who += f", and group {info.st_gid}"
        if info.st_mode & _ANYBODY:
            return Check("socket", PROBLEM, f"{path}: everybody may connect", "start the collector again")
        if os.geteuid() not in (0, info.st_uid) and not info.st_mode & _GROUP:
            hint = "run this as that user, or name a `group` for the collector"
            return Check("socket", PROBLEM, f"{path} is for {who}; this is uid {os.geteuid()}", hint)
        return Check("socket", OK, f"{path}: {who} may connect")

    def _collector(self, socket: Path) -> Iterator[Check]:
        """Whether it answers, and how it is."""
        try:
            self._status = status = ask.status(socket)
        except AgentrundError as error:
            yield Check("collector", PROBLEM, error.message, error.hint)
            return
        what = f"pid {status.get('pid')}, version {status.get('version')}, since {status.get('started_at')}"
        if status.get("version") != __version__:
            yield Check("collector", PROBLEM, f"{what}; this command is {__version__}", "start it again")
        else:
            yield Check("collector", OK, what)
        trouble = status.get("storage_trouble") or {}
        if trouble.get("since"):
            yield Check("storage", PROBLEM, f"refuses since {trouble['since']}: {status.get('last_error')}",
                        "free space or repair the disk; it goes on by itself")  # fmt: skip
        elif status.get("last_error"):
            yield Check("storage", NOTE, f"well again; its last refusal: {status['last_error']}")
        if (forwarding := status.get("forwarding")) and forwarding.get("trouble"):
            yield Check("forwarding", PROBLEM, f"to {forwarding.get('to')}: {forwarding['trouble']}",
                        "look at the other backend")  # fmt: skip
        if refused := (status.get("otlp") or {}).get("refused"):
            yield Check("overload", PROBLEM, f"{refused} OTLP requests were told to come again later",
                        "their senders may have given up; see `max_memory`, and the disk")  # fmt: skip
        if unauthenticated := (status.get("otlp") or {}).get("unauthenticated"):
            yield Check("token", PROBLEM, f"{unauthenticated} OTLP requests came without the token",
                        "set OTEL_EXPORTER_OTLP_HEADERS as `agentrund serve` prints it")  # fmt: skip


def _stored_wire(root: Path) -> dict[str, Any]:
    """What the last collector of a root had counted when it stopped, or shortly before it was killed."""
    with suppress(OSError, Damaged, msgspec.MsgspecError, UnicodeDecodeError):
        found = msgspec.json.decode(Root(root).read(f"{layout.STATE}/{layout.WIRE}"))
        return found if isinstance(found, dict) else {}
    return {}
