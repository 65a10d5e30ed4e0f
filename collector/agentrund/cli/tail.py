"""``agentrund tail``: the end of agent.logs, and what is appended to it."""

from __future__ import annotations

import time
from typing import Final

import click

from agentrund.cli import output
from agentrund.cli.colour import paint
from agentrund.cli.errors import DONE
from agentrund.cli.options import color_option, debug_option, json_option, root_option
from agentrund.cli.reading import open_root
from agentrund.model.errors import UsageError
from agentrund.views.resolve import LATEST, parse_anchor, resolve
from agentrund.views.tail import Tail

POLL_S: Final = 0.2
"""As far as agent.logs may lag behind the trace, so looking more often would show nothing sooner."""


@click.command(
    short_help="Print the end of a run's agent.logs, and follow it with -f.",
    epilog="""\b
Examples:
  agentrund tail -f                        the newest run, live
  agentrund tail 20260830_14 -n 100
  agentrund tail sess_eda --after '#0123'  go on where you stopped""",
)
@click.argument("run", default=LATEST)
@click.option("-f", "--follow", is_flag=True, help="Wait for more, through ends and resumes, until Ctrl-C.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="Begin with the last N events.",
)
@click.option("--after", metavar="SEQ", help="Begin after this event instead, such as '#0123'.")
@root_option
@json_option
@color_option
@debug_option
def command(
    *,
    run: str,
    follow: bool,
    lines: int,
    after: str | None,
    root: str | None,
    as_json: bool,
    color: str,
) -> int:
    """Print the end of a run's agent.logs, and follow it with -f.

    RUN is an id, a unique prefix, a session id or `latest`. With --json the lines of trace.jsonl.
    """
    folder = open_root(root)
    target = resolve(folder, run)
    if target.seq is not None and after is not None:
        raise UsageError(f"`{run}` and --after both name an event", hint="give one of them")
    start = parse_anchor(after) if after is not None else target.seq
    colored = output.use_color(color) and not as_json
    write = output.write_json if as_json else output.write
    with Tail(folder, target.run_id, after=start, last=lines, as_json=as_json) as tail:
        while True:
            while data := tail.read():
                write(paint(data) if colored else data)
            output.flush()
            if not follow:
                break
            time.sleep(POLL_S)
        if tail.is_missing:
            output.note(
                f"run {target.run_id} has no transcript; `agentrund rebuild {target.run_id}` makes it"
            )
    return DONE
