"""``agentrund reindex``: index.jsonl from the traces."""

from __future__ import annotations

import click

from agentrund.cli.errors import DONE
from agentrund.cli.options import debug_option, root_option
from agentrund.cli.reading import open_root
from agentrund.cli.writing import have_done
from agentrund.formats.escape import one_line


@click.command(
    short_help="Make the index of a root again from its traces.",
    epilog="""\b
Examples:
  agentrund reindex
  agentrund reindex --root /data/runs""",
)
@root_option
@debug_option
def command(*, root: str | None) -> int:
    """Make the index of a root again from its traces.

    A collector that holds the root does it; else this command takes the root's lock.
    """
    folder = open_root(root)
    have_done(folder.path, "reindex", None)
    click.echo(one_line(f"reindexed {folder.path}"))
    return DONE
