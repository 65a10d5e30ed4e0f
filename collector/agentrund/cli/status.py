"""``agentrund status``: what the running collector says of itself."""

from __future__ import annotations

from typing import Any

import click

from agentrund.cli import output
from agentrund.cli.errors import DONE
from agentrund.cli.options import debug_option, json_option, socket_option
from agentrund.formats.escape import one_line
from agentrund.service import ask, config


@click.command(
    short_help="Ask the running collector how it is.",
    epilog="""\b
Examples:
  agentrund status
  agentrund status --json | jq .otlp_grpc
  agentrund status || agentrund serve""",
)
@click.option("--root", metavar="DIR", help="Ask the collector that holds this root, and no other.")
@socket_option
@json_option
@debug_option
def command(*, root: str | None, socket: str | None, as_json: bool) -> int:
    """Ask the running collector how it is.

    Ends with 4 when no collector can be reached. With --json its answer as it came.
    """
    settings = config.load({"root": root, "socket": socket})
    if root is not None and socket is None:
        # Who names a root wants to know of that one: another collector's answer would mislead.
        where = ask.collector_of(settings.root)
    else:
        where = ask.find_collector(settings.socket, settings.root)
    answer = ask.status(where)
    if as_json:
        output.json_line(answer)
        return DONE
    facts = [(name.replace("_", " "), _shown(value)) for name, value in answer.items() if name != "op"]
    width = max((len(name) for name, _ in facts), default=0)
    for name, value in facts:
        click.echo(f"{name:<{width}}  {value}")
    return DONE


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "-"
    return one_line(str(value))
