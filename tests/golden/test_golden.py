"""The example root is what the writers write, byte for byte, and its recipes work."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from agentrund.formats import navigate

from . import make_example

EXAMPLE = Path(__file__).parent / "example_root"
RECIPES = re.findall(r"```sh\n(.*?)```", navigate.text().decode(), re.DOTALL)


def contents(root: Path) -> dict[str, bytes | str]:
    """Every file's bytes and every link's target, by path."""
    found: dict[str, bytes | str] = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = Path(folder, name)
            if path.is_symlink():
                found[str(path.relative_to(root))] = os.readlink(path)
            elif path.is_file():
                found[str(path.relative_to(root))] = path.read_bytes()
    return found


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_writers_write_the_example(tmp_path, monkeypatch, zone):
    monkeypatch.setenv("TZ", zone)
    asyncio.run(make_example.make(tmp_path / "root"))
    made, kept = contents(tmp_path / "root"), contents(EXAMPLE)
    assert sorted(made) == sorted(kept)
    for name, content in kept.items():
        assert made[name] == content, name


@pytest.mark.skipif(
    shutil.which("rg") is None or shutil.which("jq") is None, reason="the recipes are for ripgrep and jq"
)
@pytest.mark.parametrize("recipe", RECIPES, ids=range(len(RECIPES)))
def test_every_recipe_of_the_map_finds_something_in_the_example(recipe):
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", recipe],
        cwd=EXAMPLE,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def quotes() -> list[tuple[str, list[str]]]:
    """What README.md quotes of the example: the file, and the lines."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    found = re.findall(r"<!-- from (\S+) -->\n```\n(.*?)```", readme, re.DOTALL)
    return [(name, text.splitlines()) for name, text in found]


@pytest.mark.parametrize(("name", "lines"), quotes())
def test_the_readme_quotes_the_example(name, lines):
    text = (EXAMPLE / name).read_text()
    assert "\n".join(lines) in text


def test_the_readme_quotes_both_kinds_of_file():
    assert [name for name, _ in quotes()] == ["latest/agent.logs", "latest/outline.md"]
