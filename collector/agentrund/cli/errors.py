"""What a command says when it fails, and the exit code it ends with.

One line what, one line what to do, on stderr. The codes are a contract: scripts branch on them.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Final

import click

from agentrund.formats.escape import one_line
from agentrund.model import errors

DONE: Final = 0
FOUND: Final = 1
USAGE: Final = 2
NO_SUCH_RUN: Final = 3
UNREACHABLE: Final = 4
DAMAGED: Final = 5
BUG: Final = 10
INTERRUPTED: Final = 130

EXIT_CODES: Final[dict[type[errors.AgentrundError], int]] = {
    errors.UsageError: USAGE,
    errors.NoSuchRun: NO_SUCH_RUN,
    errors.Unavailable: UNREACHABLE,
    errors.Overloaded: UNREACHABLE,
    errors.Damaged: DAMAGED,
    errors.RunUnusable: DAMAGED,
    errors.Rejected: USAGE,
}


def report(error: BaseException, *, debug: bool) -> int:
    """Say on stderr what went wrong; returns the exit code."""
    if debug and not isinstance(error, (click.exceptions.Exit, BrokenPipeError)):
        traceback.print_exception(error)
    if isinstance(error, errors.AgentrundError):
        _say(f"agentrund: {error}", error.hint)
        return next(code for kind, code in EXIT_CODES.items() if isinstance(error, kind))
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        _silence_stdout()
        return DONE
    if isinstance(error, click.ClickException):
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "agentrund"
        _say(f"agentrund: {error.format_message()}", f"`{where} --help` shows how it is used")
        return USAGE
    _say(
        f"agentrund: internal error: {type(error).__name__}: {error}",
        "this is a bug; run it again with --debug and report the traceback",
    )
    return BUG


def _say(what: str, hint: str) -> None:
    print(one_line(what), file=sys.stderr)  # noqa: T201 - stderr is where errors are told
    if hint:
        print(f"  hint: {one_line(hint)}", file=sys.stderr)  # noqa: T201


def _silence_stdout() -> None:
    """Nobody reads any more: keep the interpreter's own last flush from complaining."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
