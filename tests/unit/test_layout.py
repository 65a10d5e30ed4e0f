"""Modules and functions stay small enough to be read at one go, and say what they are for."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("collector/agentrund", "client/agentrund_client")
MODULES = sorted(path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py"))
NAMES = [str(path.relative_to(REPOSITORY)) for path in MODULES]

MODULE_LINES = 500
FUNCTION_LINES = 80
MEDIAN_LINES = 200


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_module_is_small_and_explains_itself(path):
    text = path.read_text()
    assert len(text.splitlines()) <= MODULE_LINES
    tree = ast.parse(text)
    assert ast.get_docstring(tree)
    long = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.end_lineno - node.lineno >= FUNCTION_LINES
    ]
    assert long == []


def test_most_modules_are_small():
    sizes = sorted(len(path.read_text().splitlines()) for path in MODULES)
    assert sizes[len(sizes) // 2] < MEDIAN_LINES


def test_no_module_is_a_drawer_for_everything():
    assert not {path.stem for path in MODULES} & {"utils", "util", "helpers", "common", "misc"}
