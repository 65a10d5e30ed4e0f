"""``agentrund status``: what the running collector says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from agentrund.cli import output
from agentrund.cli.errors import DONE
from agentrund.cli.options import debug_option, json_option, socket_option
from agentrund.formats import figures
from agentrund.formats.escape import one_line
from agentrund.model.errors import Unavailable
from agentrund.service import ask, config

_FOR_PROGRAMS: Final = frozenset({"op", "slow lines", "quiet after s", "wire"})
"""What only --json shows."""


@click.command(
    short_help="Ask the running collector how it is.",
    epilog="""\b
Examples:
  agentrund status
  agentrund status --json | jq .otlp_grpc
  agentrund status || agentrund serve""",
)
@click.option("--root", metavar="DIR", help="Ask the collector that holds this root, and no other.")
@socket_option
@json_option
@debug_option
def command(*, root: str | None, socket: str | None, as_json: bool) -> int:
    """Ask the running collector how it is.

    Ends with 4 when no collector can be reached. With --json its answer as it came.
    """
    settings = config.load({"root": root, "socket": socket})
    try:
        answer = ask.status(_collector(root, socket, settings))
    except Unavailable as error:
        raise _with_spool(error) from error
    if as_json:
        output.json_line(answer)
        return DONE
    shown = {name: _shown(name, value) for name, value in answer.items()}
    if answer.get("open_runs"):
        shown["open_runs"] = _open_runs(answer["open_runs"], answer.get("quiet_after_s"))
    facts = [(name.removesuffix("_bytes").replace("_", " "), text) for name, text in shown.items()]
    facts = [(name, text) for name, text in facts if name not in _FOR_PROGRAMS]
    width = max((len(name) for name, _ in facts), default=0)
    for name, text in facts:
        click.echo(f"{one_line(name):<{width}}  {text}")
    return DONE


def _collector(root: str | None, socket: str | None, settings: config.Settings) -> Path:
    if root is not None and socket is None:
        # Who names a root wants to know of that one: another collector's answer would mislead.
        return ask.collector_of(settings.root)
    return ask.find_collector(settings.socket, settings.root)


def _with_spool(error: Unavailable) -> Unavailable:
    """The same error; it says what waits for a collector, where something does."""
    from agentrund.service import spool_files  # noqa: PLC0415 - loads the collector, needed only to say this

    folder = spool_files.spool_folder()
    try:
        files = sum(1 for path in folder.iterdir() if path.suffix == ".jsonl" and path.name[0] != ".")
    except OSError:
        files = 0
    if not files:
        return error
    waiting = f"{output.count(files, 'spool file')} {'waits' if files == 1 else 'wait'} in {folder}"
    return Unavailable(f"{error.message}; {waiting}", hint=error.hint)


def _shown(name: str, value: Any) -> str:
    if name.endswith("_bytes") and isinstance(value, int):
        return output.size(value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(key, item)}" for key, item in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(_shown("", item) for item in value) or "-"
    return "-" if value is None else one_line(str(value))


def _open_runs(runs: Any, quiet_after: Any) -> str:
    return "\n".join([str(len(runs)), *(f"  {_open_run(run, quiet_after)}" for run in runs)])


def _open_run(run: Any, quiet_after: Any) -> str:
    """One line of a run that is going on; it says so where nothing was heard of it for too long."""
    parts = [
        str(run.get("run_id")),
        f"attempt {run.get('attempt')}",
        f"at {figures.anchor(run.get('last_seq') or 0)}",
        output.count(run.get("sources") or 0, "source"),
    ]
    if run.get("session_id") is not None:
        parts.append(f"session {run['session_id']}")
    quiet = run.get("quiet_s")
    if isinstance(quiet, (int, float)) and isinstance(quiet_after, (int, float)) and quiet > quiet_after:
        parts.append(f"quiet {quiet:.0f} s")
    return one_line("  ".join(parts))
