"""The program ``agentrund``: finds the command, runs it, turns what it raises into an exit code.

A command's module is imported when that command is called, so ``--help`` and completion stay quick.
It knows no command's options and nothing of folders or sockets.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final

import click

from agentrund import __version__
from agentrund.cli import errors
from agentrund.cli.options import State, debug_option

COMMANDS: Final = {
    "serve": "Run the collector in the foreground.",
    "status": "Ask the running collector how it is.",
    "runs": "List runs, newest first.",
    "show": "Show a run's outline, or one event with its whole payload.",
    "tail": "Print the end of a run's agent.logs, and follow it with -f.",
    "verify": "Check every invariant of the run folders and name each damage.",
    "rebuild": "Make a run's derived files again from its trace.",
    "reindex": "Make the index of a root again from its traces.",
    "doctor": "Look for what stands between an agent and its run folder.",
    "config": "Show the effective settings and where each came from.",
}
"""Every command and the first line of its help; the modules in this package have the same names."""

EPILOG: Final = """\b
Examples:
  agentrund serve                      record: prints what to paste into your agent
  agentrund runs                       what ran, what is running, what died
  agentrund show latest                the outline of the newest run
  agentrund show 'latest#0016'         one event, in full
  agentrund tail -f                    follow the newest run

\b
Exit codes: 0 done, 1 found something, 2 usage, 3 no such run, 4 collector not
reachable, 5 damaged data, 10 a bug of ours, 130 interrupted."""


class LazyGroup(click.Group):
    """Commands by name, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order a newcomer meets them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"agentrund.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what ends it from outside is an exit code here, before click makes it its own."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, KeyboardInterrupt) as end:
            return errors.report(end, debug=False)


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="agentrund")
@debug_option
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A flight recorder for LLM agents: events in, readable run folders out, crashes noticed."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(args: list[str] | None = None) -> None:
    """Run the command line ``args`` (default: the process's own) and exit."""
    state = State()
    try:
        code = cli.main(args, prog_name="agentrund", standalone_mode=False, obj=state)
        if sys.stdout is not None:  # closed before we were started
            sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 - the outermost frame: everything becomes an exit code
        code = errors.report(error, debug=state.debug)
    sys.exit(code or errors.DONE)


if __name__ == "__main__":
    main()
