"""Whatever lies in a root, what reads it gives values or one of our errors, and commands end as documented."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrund.cli import errors
from agentrund.cli.main import main
from support import mutate
from support.planting import PLANTS, Outside, plant
from support.read_everything import read_everything, sound_files, write_root

RUN = "20260830_142233_a1b2"
FILES = ("trace.jsonl", "agent.logs", "outline.md", "analytics.json", "meta.json", "blobs")
CODES = {errors.DONE, errors.FOUND, errors.USAGE, errors.NO_SUCH_RUN, errors.UNREACHABLE, errors.DAMAGED}

chances = st.integers(0, 2**64).map(Random)
thorough = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@cache
def sound() -> dict[str, bytes]:
    """The files of a root in which nothing is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        return sound_files(Path(folder))


def hurt(chance: Random) -> dict[str, bytes]:
    """A root with some of its files gone wrong or missing; the trace most of all."""
    files = dict(sound())
    traces = [name for name in files if name.endswith(f"{RUN}/trace.jsonl")]
    for _ in range(chance.choice((1, 1, 2, 4))):
        name = chance.choice(traces if chance.random() < 0.4 else sorted(files))
        if chance.random() < 0.05 and name not in traces:
            del files[name]
        elif name.endswith((".jsonl", "meta.json", "analytics.json")) and chance.random() < 0.6:
            files[name] = mutate.in_lines(chance, files[name])
        else:
            files[name] = mutate.in_bytes(chance, files[name])
    return files


@given(chance=chances)
@thorough
def test_readers_of_a_root_raise_our_errors_only(chance, tmp_path_factory):
    base = tmp_path_factory.getbasetemp() / "hurt"
    write_root(base, hurt(chance))
    read_everything(base, RUN)


@given(chance=chances)
@settings(thorough, max_examples=8)
def test_commands_end_with_a_documented_code_and_no_traceback(chance, tmp_path_factory):
    base: Path = tmp_path_factory.getbasetemp() / "hurt"
    write_root(base, hurt(chance))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTRUND_ROOT", str(base))
        patch.chdir(base)
        for command in (
            ["runs"], ["runs", "--json"], ["show", RUN], ["show", f"{RUN}#0008"], ["show", RUN, "--json"], ["show", "latest"],
            ["tail", RUN], ["verify"], ["verify", RUN], ["rebuild", RUN], ["reindex"], ["verify"],
        ):  # fmt: skip
            assert ended(main, command) in CODES, command


@pytest.mark.parametrize("what", PLANTS)
@pytest.mark.parametrize("name", ["index.jsonl", "runs", *(f"runs/{RUN}/{name}" for name in FILES)])
def test_commands_end_whatever_kind_of_file_is_in_the_place_of_one(tmp_path, monkeypatch, name, what):
    """They wait for no FIFO, read no device without an end, and leave alone what lies outside."""
    base, outside = tmp_path / "root", Outside(tmp_path)
    write_root(base, sound())
    plant(base / name, what, outside)
    monkeypatch.setenv("AGENTRUND_ROOT", str(base))
    monkeypatch.chdir(tmp_path)
    for command in (
        ["runs"], ["show", RUN], ["show", f"{RUN}#0008"], ["show", RUN, "--json"], ["tail", RUN], ["verify"], ["rebuild", RUN],
        ["reindex"],
    ):  # fmt: skip
        assert ended(main, command) in CODES, command
    assert outside.untouched()


def ended(command, arguments) -> int:
    """The exit code of a command."""
    try:
        return command(arguments) or 0
    except SystemExit as end:
        return end.code or 0
