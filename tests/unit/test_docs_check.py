"""The check of the documentation finds what is missing."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def check():
    spec = importlib.util.spec_from_file_location("docs_check", REPOSITORY / "docs" / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path):
    for name in ("docs", "proto"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    return tmp_path


def test_this_repository_is_documented(check):
    assert check.problems(REPOSITORY) == []


@pytest.mark.parametrize(
    ("page", "word", "what"),
    [
        ("cli.md", "agentrund reindex", "command `agentrund reindex`"),
        ("cli.md", "--after", "option `--after`"),
        ("cli.md", "| 130 |", "exit code 130"),
        ("configuration.md", "idle_close", "setting `idle_close`"),
        ("configuration.md", "AGENTRUND_IDLE_CLOSE", "variable `AGENTRUND_IDLE_CLOSE`"),
        ("stream-protocol.md", "unknown_op", "error code `unknown_op`"),
        ("run-folder.md", "source.exit", "event type `source.exit`"),
        ("cli.md", "`finalising`", "status: field `finalising`"),
        ("cli.md", "`duplicates`", "status: field `duplicates`"),
        ("cli.md", "`last_seq`", "status: field `last_seq`"),
        ("cli.md", "`offset`", "verify: field `offset`"),
        ("run-folder.md", "`last_error`", "index.jsonl: field `last_error`"),
        ("run-folder.md", "`dur_ms`", "trace.jsonl: field `dur_ms`"),
        ("run-folder.md", "`rollup_usd`", "analytics.json: field `rollup_usd`"),
        ("run-folder.md", "`outcome`", "meta.json: field `outcome`"),
    ],
)
def test_what_is_not_said_is_found(check, copy, page, word, what):
    path = copy / "docs" / "reference" / page
    path.write_text(path.read_text().replace(word, "nothing"))
    assert [p for p in check.problems(copy) if what in p]


def test_a_field_must_be_documented_where_it_belongs(check, copy):
    path = copy / "docs" / "reference" / "cli.md"
    status, rest = path.read_text().split("## runs", 1)
    before, section = status.split("## status", 1)
    path.write_text(f"{before}## status\n\n## runs{rest}\n## elsewhere\n{section}")
    assert [p for p in check.problems(copy) if "status: field `disk_free_bytes`" in p]


def test_a_dead_link_is_found(check, copy):
    (copy / "docs" / "new.md").write_text("see [there](nowhere.md) and [here](glossary.md#run)")
    assert [p for p in check.problems(copy) if p.startswith("docs/new.md")] == [
        "docs/new.md: link to nowhere.md leads nowhere"
    ]


def test_a_guard_that_is_gone_is_found(check, copy):
    (copy / "ARCHITECTURE.md").write_text(
        "`tests/test_x.py::test_a`, `tests/test_x.py::test_b`, `tests/y.py`"
    )
    (copy / "tests").mkdir()
    (copy / "tests" / "test_x.py").write_text("def test_a():\n    pass\n")
    assert [p for p in check.problems(copy) if p.startswith("ARCHITECTURE")] == [
        "ARCHITECTURE.md: there is no tests/test_x.py::test_b",
        "ARCHITECTURE.md: there is no tests/y.py",
    ]
