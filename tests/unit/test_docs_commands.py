"""Every command line of ours that a page or a help text shows is one that the program understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from agentrund.cli.main import COMMANDS, EPILOG, cli

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    REPOSITORY / "README.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    REPOSITORY / "client" / "README.md",
]
BLOCKS = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
BETWEEN = {"&&", "||", "|", ";"}


def calls(text):
    """The arguments of every call of `agentrund` in some lines of shell."""
    for line in text.splitlines():
        lexer = shlex.shlex(re.sub(r"(^|\s)#.*", "", line), posix=True, punctuation_chars=True)
        lexer.commenters, lexer.whitespace_split = "", True
        try:
            words = list(lexer)
        except ValueError:
            continue  # a quote that is no shell's
        command = []
        for word in [*words, ";"]:
            if word not in BETWEEN:
                command.append(word)
                continue
            while command and re.fullmatch(r"[A-Z_]+=.*", command[0]):
                del command[0]
            if command[:1] == ["agentrund"]:
                yield command[1:]
            command = []


def shown():
    for page in PAGES:
        for block in BLOCKS.findall(page.read_text()):
            for args in calls(block):
                yield pytest.param(args, id=f"{page.name}: {' '.join(args)}")


def examples():
    for epilog in (EPILOG, *(cli.get_command(None, name).epilog for name in COMMANDS)):
        for args in calls(re.sub(r"(?<=\S) {2,}", "  # ", epilog)):
            yield pytest.param(args, id=f"help: {' '.join(args)}")


def parse(args):
    name, *rest = args
    command = cli.get_command(None, name)
    assert command is not None, f"no command {name}"
    command.make_context(name, rest)


@pytest.mark.parametrize("args", [*shown(), *examples()])
def test_what_is_shown_is_understood(args):
    parse(args)


def test_the_readme_shows_the_commands_of_every_day():
    readme = [
        args for block in BLOCKS.findall((REPOSITORY / "README.md").read_text()) for args in calls(block)
    ]
    assert {"serve", "runs", "show", "tail", "verify"} <= {args[0] for args in readme}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("agentrund show 'latest#0014'   # one event", [["show", "latest#0014"]]),
        ("agentrund show latest#0014", [["show", "latest#0014"]]),
        ("AGENTRUND_OTLP_GRPC=off agentrund serve", [["serve"]]),
        ("agentrund status || agentrund serve", [["status"], ["serve"]]),
        ("agentrund runs --json | jq -r 'select(.errors > 0)'", [["runs", "--json"]]),
        ("make agentrund", []),
        ("it's no shell", []),
    ],
)
def test_calls_are_found(line, found):
    assert list(calls(line)) == found


@pytest.mark.parametrize("args", [["dance"], ["runs", "--colour", "always"], ["show"], ["tail", "-n", "x"]])
def test_what_is_wrong_is_found(args):
    with pytest.raises((click.UsageError, AssertionError)):
        parse(args)
