"""``agentrund config``: the effective settings."""

from __future__ import annotations

import click

from agentrund.cli import output
from agentrund.cli.errors import DONE
from agentrund.cli.options import debug_option, json_option
from agentrund.service import config


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
    if as_json:
        output.json_line(
            {name: {"value": value, "origin": settings.origins[name]} for name, value in shown.items()}
        )
    elif show_origin:
        rows = [(name, value, settings.origins[name]) for name, value in shown.items()]
        output.table(("SETTING", "VALUE", "ORIGIN"), rows, color=False)
    else:
        for name, value in shown.items():
            click.echo(f"{name} = {value}")
    return DONE
