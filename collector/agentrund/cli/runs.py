"""``agentrund runs``: the table of runs."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final

import click

from agentrund.cli import output
from agentrund.cli.errors import DAMAGED, DONE
from agentrund.cli.options import color_option, debug_option, json_option, root_option
from agentrund.cli.reading import open_root
from agentrund.model.errors import UsageError
from agentrund.model.event import Json
from agentrund.service.clock import Clock
from agentrund.service.settings_types import parse_time
from agentrund.views.folder import Root
from agentrund.views.runs import Filter, list_runs

HEADER: Final = ("RUN", "STATUS", "STARTED", "ACTIVE", "LLM", "TOOL", "ERR", "COST", "SESSION", "LAST ERROR")
_ERROR_MAX: Final = 60


@click.command(
    short_help="List runs, newest first.",
    epilog="""\b
Examples:
  agentrund runs -n 10
  agentrund runs --status crashed --since 2h
  agentrund runs --json | jq -r 'select(.errors > 0) | .run_id'""",
)
@click.argument("path", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--status", type=click.Choice(["running", "ok", "failed", "crashed"]), help="Only such runs.")
@click.option("--session", metavar="ID", help="Only runs of this session.")
@click.option(
    "--since", metavar="WHEN", help="Only runs started since: 2h ago, or a date or time in ISO form."
)
@click.option("-n", "--limit", type=click.IntRange(min=0), metavar="N", help="Only the newest N.")
@root_option
@json_option
@color_option
@debug_option
def command(
    *,
    path: Path | None,
    status: str | None,
    session: str | None,
    since: str | None,
    limit: int | None,
    root: str | None,
    as_json: bool,
    color: str,
) -> int:
    """List runs, newest first.

    PATH is another root to list. With --json one line per run, the rows of index.jsonl.
    """
    if path is not None and root is not None:
        raise UsageError("PATH and --root both name a root", hint="give one of them")
    wanted = Filter(status=status, session=session, since=_since(since), limit=limit)
    folder = Root(path) if path is not None else open_root(root)
    listing = list_runs(folder, wanted)
    if as_json:
        for row in listing.rows:
            output.json_line(row)
    elif listing.rows:
        output.table(HEADER, [_cells(row) for row in listing.rows], color=output.use_color(color))
    else:
        output.note(f"no runs in {folder.path}")
    for damage in listing.damaged:
        output.note(f"{damage} ({damage.hint})")
    return DAMAGED if listing.damaged else DONE


def _since(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return Clock().now() - parse_time(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise UsageError(
            f"--since {text}: not a time", hint="expected 30m, 2h, 3d, or 2026-08-30T14:00"
        ) from None


def _cells(row: Json) -> tuple[str, ...]:
    started = str(row.get("started_at") or "-")
    return (
        str(row["run_id"]),
        str(row.get("status") or "-"),
        started[:19].replace("T", " "),
        _number(row.get("active_sec"), "{:.1f}s"),
        _number(row.get("llm_calls"), "{}"),
        _number(row.get("tool_calls"), "{}"),
        _number(row.get("errors"), "{}"),
        _number(row.get("cost_usd"), "${:.4f}"),
        str(row.get("session_id") or "-"),
        _short(str(row.get("last_error") or "-")),
    )


def _number(value: object, form: str) -> str:
    return form.format(value) if isinstance(value, (int, float)) else "-"


def _short(text: str) -> str:
    return text if len(text) <= _ERROR_MAX else text[: _ERROR_MAX - 1] + "…"
