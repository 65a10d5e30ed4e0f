"""Every kind of error has its exit code and two harmless lines."""

from __future__ import annotations

import pytest

from agentrund.cli import errors
from agentrund.cli.main import COMMANDS, cli
from agentrund.model import errors as model


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (model.UsageError("x", hint="y"), 2),
        (model.NoSuchRun("x", hint="y"), 3),
        (model.Unavailable("x", hint="y"), 4),
        (model.Overloaded("x", retry_s=1.0, hint="y"), 4),
        (model.Damaged("x", path="p", offset=7, hint="y"), 5),
        (model.Rejected("unknown_op", "x", hint="y"), 2),
        (ValueError("x"), 10),
        (KeyboardInterrupt(), 130),
    ],
)
def test_codes(error, code, capsys):
    assert errors.report(error, debug=False) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == (0 if code == 130 else 2)


def test_every_error_of_the_tree_has_a_code():
    assert set(errors.EXIT_CODES) == set(model.AgentrundError.__subclasses__())


def test_foreign_text_in_an_error_is_harmless(capsys):
    errors.report(model.NoSuchRun("no run `\x1b[2J\n`", hint="h"), debug=False)
    assert "\x1b" not in capsys.readouterr().err


def test_the_table_of_commands_says_what_their_own_help_says():
    for name, about in COMMANDS.items():
        command = cli.get_command(None, name)
        assert command.get_short_help_str(limit=200) == about
        assert command.help.splitlines()[0] == about
