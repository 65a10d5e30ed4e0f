"""``agentrund verify``: every invariant of the run folders."""

from __future__ import annotations

from dataclasses import asdict

import click

from agentrund.cli import output
from agentrund.cli.errors import DONE, FOUND
from agentrund.cli.options import debug_option, json_option, root_option
from agentrund.cli.reading import open_root
from agentrund.formats.escape import one_line
from agentrund.views.finding import Finding
from agentrund.views.resolve import resolve
from agentrund.views.verify import verify


@click.command(
    short_help="Check every invariant of the run folders and name each damage.",
    epilog="""\b
Examples:
  agentrund verify
  agentrund verify latest
  agentrund verify --json | jq -r .path""",
)
@click.argument("run", nargs=-1)
@root_option
@json_option
@debug_option
def command(*, run: tuple[str, ...], root: str | None, as_json: bool) -> int:
    """Check every invariant of the run folders and name each damage.

    Without RUN all runs, the index and the links. Changes nothing. Ends with 1 when anything was found.
    With --json one line per finding: path, offset, message, hint.
    """
    folder = open_root(root)
    run_ids = [resolve(folder, name).run_id for name in run] or None
    found = 0
    with output.progress("verify") as show:
        for finding in verify(folder, run_ids, show):
            found += 1
            output.clear_bar()
            _say(finding, as_json=as_json)
    if not found and not as_json:
        output.note("nothing found")
    return FOUND if found else DONE


def _say(finding: Finding, *, as_json: bool) -> None:
    if as_json:
        output.json_line(asdict(finding))
        output.flush()
        return
    click.echo(one_line(f"{finding.path}:{finding.offset}: {finding.message}"))
    click.echo(f"  hint: {one_line(finding.hint)}")
