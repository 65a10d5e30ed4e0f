"""``agentrund serve``: the collector itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from agentrund.cli.options import debug_option
from agentrund.service import config


def _settings_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """One option a setting; what it may be is checked with all other sources of settings."""
    for name in reversed(config.FLAGS):
        option = click.option(
            f"--{name.replace('_', '-')}",
            name,
            metavar="VALUE",
            help=f"{_sentence(config.ABOUT[name])} {_sentence(config.KINDS[name].expected)}",
        )
        function = option(function)
    return function


def _sentence(phrase: str) -> str:
    return f"{phrase[0].upper()}{phrase[1:]}."


@click.command(
    short_help="Run the collector in the foreground.",
    epilog="""\b
Examples:
  agentrund serve
  agentrund serve --root /data/runs --otlp-grpc 127.0.0.1:0
  AGENTRUND_OTLP_GRPC=off agentrund serve""",
)
@_settings_options
@click.option(
    "--insecure",
    is_flag=True,
    help="Let other machines reach the OTLP listener with neither token nor TLS.",
)
@debug_option
def command(*, insecure: bool, **flags: str | None) -> int:
    """Run the collector in the foreground.

    Needs no configuration: it prints its socket, its OTLP address, its root, and the lines to paste
    into an agent's environment. SIGTERM or Ctrl-C ends it cleanly, a second one at once.
    Every setting is also a key of agentrund.toml and an AGENTRUND_ variable; `token` is only those.
    """
    settings = config.load(flags)
    # What goes wrong is said once, by us; grpc reads this when it is loaded.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from agentrund.service.daemon import serve  # noqa: PLC0415 - loads grpc, which --help can do without

    return serve(settings, insecure=insecure)
