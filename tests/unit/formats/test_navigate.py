"""NAVIGATE.md: every recipe runs against a root and finds something."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from agentrund.formats import navigate
from support.records import RUN
from support.run_root import seed_book, write_run

pytestmark = pytest.mark.skipif(
    shutil.which("rg") is None or shutil.which("jq") is None, reason="the recipes are for ripgrep and jq"
)

RECIPES = re.findall(r"```sh\n(.*?)```", navigate.text().decode(), re.DOTALL)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp("root")
    write_run(path, seed_book())
    return path


def run(recipe, root):
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", recipe],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("recipe", RECIPES, ids=range(len(RECIPES)))
def test_recipe(recipe, root):
    done = run(recipe, root)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def recipe_with(text):
    return next(recipe for recipe in RECIPES if text in recipe)


def test_the_failures_of_a_run_have_anchors_of_any_length(root):
    recipe = recipe_with("def anchor")
    lines = run(recipe, root).stdout.splitlines()
    assert lines == [
        "#0020  tool.error  run_python  TimeoutError: exceeded 30s",
        "#0025  error  executor  RuntimeError: executor gave up after 2 attempts",
    ]
    trace = (root / "runs" / RUN / "trace.jsonl").read_text()
    wide = trace.replace('"seq":20,', '"seq":12345,')
    done = subprocess.run(
        ["jq", "-r", recipe.split("'")[1]], input=wide, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[0].startswith("#12345  tool.error")


def test_the_calls_of_one_tool(root):
    lines = run(recipe_with("run_python"), root).stdout.splitlines()
    assert [line[:5] for line in lines] == ["#0019", "#0020", "#0021"]


def test_one_event_with_its_block(root):
    assert run(recipe_with("#0004"), root).stdout.splitlines() == [
        "#0004 14:22:35.500  +2.3s  llm.response  triage       stop=end_turn · 386 tok · $0.0005",
        "┌──────────────────────────────────",
        '{"decision":',
        ' "work"}',
        "└─ #0004 end · 21 B ───────────────",
    ]


def test_a_search_below_runs_finds_a_run_once(root):
    assert len(run("rg -l TimeoutError runs/*/agent.logs", root).stdout.splitlines()) == 1
