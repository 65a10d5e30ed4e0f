"""``agentrund config``: the effective settings."""

from __future__ import annotations

import os
from pathlib import Path

import click

from agentrund.cli import output
from agentrund.cli.errors import DONE
from agentrund.cli.options import debug_option, json_option
from agentrund.formats.escape import one_line
from agentrund.service import ask, config, places


@click.command(
    short_help="Show the effective settings and where each came from.",
    epilog="""\b
Examples:
  agentrund config --show-origin
  AGENTRUND_ROOT=/tmp/x agentrund config --json""",
)
@click.option("--show-origin", is_flag=True, help="Say for each value which flag, variable or file set it.")
@json_option
@debug_option
def command(*, show_origin: bool, as_json: bool) -> int:
    """Show the effective settings and where each came from.

    With --json one object: each setting's name to its value as it would be typed, and its origin.
    """
    settings = config.load()
    shown = {name: settings.show(name) for name in config.NAMES}
    if settings.socket is None and not as_json and (now := _socket_now(settings)) is not None:
        shown["socket"] += f", now {now}"
    if as_json:
        output.json_line(
            {name: {"value": value, "origin": settings.origins[name]} for name, value in shown.items()}
        )
    elif show_origin:
        rows = [(name, value, settings.origins[name]) for name, value in shown.items()]
        output.table(("SETTING", "VALUE", "ORIGIN"), rows, color=False)
    else:
        for name, value in shown.items():
            click.echo(one_line(f"{name} = {value}"))
    return DONE


def _socket_now(settings: config.Settings) -> Path | None:
    """The socket that is used while nobody names one."""
    return ask.holder(settings.root) or places.find_socket(None, os.environ)
