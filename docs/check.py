"""Fails when something a user can type, set or receive is not documented, or a link leads nowhere.

What exists is asked of the code: commands and options, settings, variables, exit codes, protocol error
codes, event types, the fields of JSON output. What is documented is whatever stands in backquotes in the
right page; of a field, in the right section of it.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from agentrund.cli import errors
from agentrund.cli.main import COMMANDS
from agentrund.formats import index
from agentrund.model import kinds
from agentrund.service import config
from agentrund.service.check import Check
from agentrund.views import check_trace
from agentrund.views.finding import Finding

HERE: Final = Path(__file__).resolve().parents[1]
REFERENCE: Final = "docs/reference"
EXAMPLE: Final = "tests/golden/example_root/latest"
"""A run as the product writes it, which a test keeps so."""
STATUS: Final = ("service/status.py", "service/otlp_door.py")
"""Where the collector's answer is put together: all of the first, what is called ``status`` of the second."""
_BY_NAME: Final = frozenset({"agents", "by_agent", "tools", "tool_calls_by_name", "git"})
"""Objects whose keys are a sender's words."""
_VARIABLE: Final = re.compile(r"\bAGENTRUND_[A-Z][A-Z_]*[A-Z]\b")
_REFUSAL: Final = re.compile(r"Rejected\(\s*\"(\w+)\"")
_LINK: Final = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_CODE: Final = re.compile(r"`+([^`]+)`+")


def problems(repository: Path) -> list[str]:
    """Everything that is wrong with the documentation of a repository."""
    return [
        *_missing(repository, "cli.md", "command", (f"agentrund {name}" for name in COMMANDS)),
        *_missing(repository, "cli.md", "option", _options()),
        *_missing(repository, "configuration.md", "setting", config.NAMES),
        *_missing(repository, "configuration.md", "variable", map(config.env_name, config.NAMES)),
        *_missing(repository, "configuration.md", "variable", _variables(repository)),
        *_missing(repository, "stream-protocol.md", "error code", _error_codes(repository)),
        *_missing(repository, "run-folder.md", "event type", _event_types()),
        *_missing(repository, "cli.md", "field", _status_fields(), "status"),
        *_missing(repository, "cli.md", "field", (f.name for f in dataclasses.fields(Finding)), "verify"),
        *_missing(repository, "cli.md", "field", (f.name for f in dataclasses.fields(Check)), "doctor"),
        *_missing(repository, "run-folder.md", "field", index.KEYS, "index.jsonl"),
        *_missing(repository, "run-folder.md", "field", (*check_trace.KEYS, "src"), "trace.jsonl"),
        *_missing(repository, "run-folder.md", "field", _written("analytics.json"), "analytics.json"),
        *_missing(repository, "run-folder.md", "field", _written("meta.json"), "meta.json"),
        *_exit_codes(repository),
        *_dead_links(repository),
        *_missing_tests(repository),
    ]


def _missing(
    repository: Path, page: str, what: str, names: Iterable[str], section: str = ""
) -> Iterator[str]:
    documented = _said(repository / REFERENCE / page, section)
    where = f", {section}" if section else ""
    for name in sorted(set(names)):
        if not any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) for text in documented):
            yield f"{REFERENCE}/{page}{where}: {what} `{name}` is not documented"


def _said(page: Path, section: str = "") -> list[str]:
    """What stands in backquotes in a page, or in one of its sections."""
    text = page.read_text() if page.exists() else ""
    if section:
        found = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        text = found[1] if found else ""
    return _CODE.findall(text)


def _options() -> Iterator[str]:
    """Every long option but the settings, which ``serve`` takes too and another page describes."""
    for name in COMMANDS:
        command = import_module(f"agentrund.cli.{name}").command
        for parameter in command.params:
            if isinstance(parameter, click.Option) and parameter.name not in config.NAMES:
                yield from (option for option in parameter.opts if option.startswith("--"))


def _sources(repository: Path) -> Iterator[Path]:
    for folder in ("collector/agentrund", "client/agentrund_client"):
        yield from sorted((repository / folder).rglob("*.py"))


def _variables(repository: Path) -> Iterator[str]:
    for path in _sources(repository):
        yield from _VARIABLE.findall(path.read_text())


def _error_codes(repository: Path) -> Iterator[str]:
    schema = json.loads((repository / "proto/stream/v1.schema.json").read_text())
    yield from schema["$defs"]["collector_error"]["properties"]["code"]["enum"]
    for path in _sources(repository):
        # The OTLP door's refusals become gRPC statuses, not frames.
        if "otlp" not in path.name:
            yield from _REFUSAL.findall(path.read_text())


def _event_types() -> Iterator[str]:
    yield from kinds.LIFECYCLE | kinds.OPENERS | set(kinds.CLOSES) | {kinds.ERROR, kinds.LOG}


def _status_fields() -> Iterator[str]:
    """Every key of the collector's answer to ``status``, nested ones too."""
    for name in STATUS:
        tree = ast.parse((HERE / "collector/agentrund" / name).read_text())
        functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))
        functions = (n for n in functions if "status" in (n.name, Path(name).stem))
        for node in (node for function in functions for node in ast.walk(function)):
            if isinstance(node, ast.Dict):
                keys = (key.value for key in node.keys if isinstance(key, ast.Constant))
                yield from (key for key in keys if isinstance(key, str))


def _written(name: str) -> Iterator[str]:
    """Every key of a document in the example run."""
    yield from _keys(json.loads((HERE / EXAMPLE / name).read_text()))


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _keys(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _values(item) if key in _BY_NAME else _keys(item)


def _values(named: dict[str, Any]) -> Iterator[str]:
    for item in named.values():
        yield from _keys(item)


def _exit_codes(repository: Path) -> Iterator[str]:
    text = (repository / REFERENCE / "cli.md").read_text()
    for code in (errors.DONE, errors.BUG, errors.INTERRUPTED, errors.FOUND, *errors.EXIT_CODES.values()):
        if f"| {code} |" not in text:
            yield f"{REFERENCE}/cli.md: exit code {code} is not documented"


def _dead_links(repository: Path) -> Iterator[str]:
    pages = [*repository.glob("*.md"), *(repository / "docs").rglob("*.md"), *repository.glob("client/*.md")]
    for page in sorted(pages):
        for target in _LINK.findall(page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                yield f"{page.relative_to(repository)}: link to {target} leads nowhere"


def _missing_tests(repository: Path) -> Iterator[str]:
    """Tests that ARCHITECTURE.md names as guards, and that are not there."""
    for named in _said(repository / "ARCHITECTURE.md"):
        if named.startswith("tests/"):
            name, _, function = named.partition("::")
            path = repository / name
            if not path.exists() or (function and f"def {function}(" not in path.read_text()):
                yield f"ARCHITECTURE.md: there is no {named}"


if __name__ == "__main__":
    if found := problems(HERE):
        sys.exit("\n".join(found))
