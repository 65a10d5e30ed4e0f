"""``agentrund doctor``: what stands between an agent and its run folder."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Final

import click

from agentrund.cli import output
from agentrund.cli.errors import DONE, FOUND
from agentrund.cli.options import debug_option, json_option, socket_option
from agentrund.formats.escape import one_line
from agentrund.service import config
from agentrund.service.check import NOTE, OK, PROBLEM
from agentrund.service.checkup import Checkup

_COLOR: Final = {OK: "green", NOTE: "cyan", PROBLEM: "red"}
_WIDTH: Final = max(map(len, _COLOR))


@click.command(
    short_help="Look for what stands between an agent and its run folder.",
    epilog="""\b
Examples:
  agentrund doctor
  agentrund doctor --json | jq -r '.checks[] | select(.state == "problem") | .message'
  agentrund doctor --json | jq '.clients[].unmapped'""",
)
@click.option("--root", metavar="DIR", help="The root to look at.")
@socket_option
@json_option
@debug_option
def command(*, root: str | None, socket: str | None, as_json: bool) -> int:
    """Look for what stands between an agent and its run folder.

    The socket and who may connect, the OTLP ports, the root and its disk, clock and limits, spooled events,
    and of every OTLP client what it lost and which of its attributes no rule reads. Changes nothing. Ends
    with 1 when there is a problem. With --json one object: checks and clients.
    """
    checkup = Checkup(config.load({"root": root, "socket": socket}), os.environ)
    color, checks = output.use_color("auto"), []
    for check in checkup.checks():
        checks.append(check)
        if as_json:
            continue
        state = (
            click.style(f"{check.state:<{_WIDTH}}", fg=_COLOR[check.state])
            if color
            else f"{check.state:<{_WIDTH}}"
        )
        click.echo(f"{state}  {one_line(f'{check.what}: {check.message}')}", color=color)
        if check.hint:
            click.echo(f"{'':<{_WIDTH}}  hint: {one_line(check.hint)}")
    if as_json:
        output.json_line(
            {"checks": [asdict(check) for check in checks], "clients": checkup.wire.get("clients", [])}
        )
    return FOUND if any(check.state == PROBLEM for check in checks) else DONE
