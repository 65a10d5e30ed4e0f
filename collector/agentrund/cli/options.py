"""Options that several commands share, and what they mean: root, colour, JSON, debug."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class State:
    """What was said for the whole call, wherever on the line it stood."""

    debug: bool = False


def _set_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's form
    if value:
        ctx.ensure_object(State).debug = True


def debug_option(command: F) -> F:
    """``--debug``, before or after the command's name."""
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_set_debug,
        help="Show the traceback of an error.",
    )(command)


root_option = click.option(
    "--root",
    metavar="DIR",
    help="Folder that holds the runs [default: configuration, ./.runs, the running collector's].",
)
socket_option = click.option("--socket", metavar="PATH", help="The collector's Unix socket.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
color_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colour the output; auto colours on a terminal without NO_COLOR.",
)


def existing_root(flag: str | None) -> Path | None:
    """The root a reader was told to use, None where only the default is left."""
    from agentrund.service import config  # noqa: PLC0415 - completion and --help need no configuration

    settings = config.load({"root": flag})
    return None if settings.origins["root"] == config.DEFAULT else settings.root
