"""``agentrund show``: a run's outline, or one event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from agentrund.cli import output
from agentrund.cli.errors import DONE
from agentrund.cli.options import debug_option, json_option, root_option
from agentrund.cli.reading import open_root
from agentrund.model.errors import UsageError
from agentrund.service.clock import Clock
from agentrund.views import show
from agentrund.views.folder import Root
from agentrund.views.resolve import resolve

TEXT: Final = "text"
JSON: Final = "json"
JSONL: Final = "jsonl"


@click.command(
    short_help="Show a run's outline, or one event with its whole payload.",
    epilog="""\b
Examples:
  agentrund show latest
  agentrund show 20260830_14#0016
  agentrund show sess_eda --format jsonl --detail full | jq .type""",
)
@click.argument("run")
@click.option(
    "--detail",
    type=click.Choice(show.DETAILS),
    help="How much: low says how it went, high what happened, full everything with blobs put back "
    "[default: high for a run, full for an event].",
)
@click.option(
    "--format",
    "form",
    type=click.Choice([TEXT, JSON, JSONL]),
    help="Text for people, one JSON document, or JSON lines as in trace.jsonl [default: text].",
)
@root_option
@json_option
@debug_option
def command(*, run: str, detail: str | None, form: str | None, root: str | None, as_json: bool) -> int:
    """Show a run's outline, or one event with its whole payload.

    RUN is an id, a unique prefix, a session id or `latest`; RUN#0016 is one of its events, and
    '#0016' alone one of the newest run. --json is short for --format json.
    """
    if as_json and form not in (None, JSON):
        raise UsageError(f"--json and --format {form} contradict each other", hint="give one of them")
    form = JSON if as_json else form or TEXT
    folder = open_root(root)
    target = resolve(folder, run)
    if target.seq is None:
        _show_run(folder, target.run_id, detail or show.HIGH, form)
    else:
        _show_event(folder, target.run_id, target.seq, detail or show.FULL, form)
    return DONE


def _show_event(root: Root, run_id: str, seq: int, detail: str, form: str) -> None:
    record = show.event(root, run_id, seq, detail)
    if form == TEXT:
        output.write(show.event_text(record, detail).encode())
    else:
        output.write_json(show.event_json(record))


def _show_run(root: Root, run_id: str, detail: str, form: str) -> None:
    if form in (JSON, JSONL):
        for piece in (show.document if form == JSON else show.jsonl)(root, run_id, detail):
            output.write_json(piece)
        return
    pieces: Iterator[bytes]
    if detail == show.FULL:
        pieces = (text.encode() for text in show.texts(root, run_id))
    elif detail == show.LOW:
        pieces = iter([show.summary(root, run_id, Clock().now()).encode()])
    else:
        pieces = iter([show.outline(root, run_id)])
    for piece in pieces:
        output.write(piece)
