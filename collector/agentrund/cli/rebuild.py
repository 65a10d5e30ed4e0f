"""``agentrund rebuild``: a run's derived files from its trace."""

from __future__ import annotations

import click

from agentrund.cli.errors import DONE
from agentrund.cli.options import debug_option, root_option
from agentrund.cli.reading import open_root
from agentrund.cli.writing import have_done
from agentrund.views.resolve import resolve


@click.command(
    short_help="Make a run's derived files again from its trace.",
    epilog="""\b
Examples:
  agentrund rebuild latest
  agentrund verify || agentrund rebuild 20260830_142233""",
)
@click.argument("run")
@root_option
@debug_option
def command(*, run: str, root: str | None) -> int:
    """Make a run's derived files again from its trace.

    agent.logs, outline.md, analytics.json, meta.json and the index row. The trace and the blobs are
    only read, but for a torn last line of the trace, which moves to .agentrund/quarantine.
    A collector that holds the root does it; else this command takes the root's lock.
    """
    folder = open_root(root)
    run_id = resolve(folder, run).run_id
    have_done(folder.path, "rebuild", run_id)
    click.echo(f"rebuilt {run_id}")
    return DONE
