"""Both distributions build; the client's works alone; the program starts without loading its doors."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import agentrund
import agentrund_client

REPOSITORY = Path(__file__).parents[2]


def run(*args, cwd=None):
    done = subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, cwd=cwd, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    for project in (REPOSITORY, REPOSITORY / "client"):
        run("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(project))
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


def test_both_build(wheels):
    assert set(wheels) == {"agentrund", "agentrund_client"}


def test_wheels_hold_their_package_and_nothing_else(wheels):
    for name, path in wheels.items():
        tops = {member.split("/")[0] for member in zipfile.ZipFile(path).namelist()}
        assert tops == {name, f"{name}-{agentrund.__version__}.dist-info"}
        assert f"{name}/py.typed" in zipfile.ZipFile(path).namelist()


def test_client_has_no_dependencies_and_works_alone(wheels, tmp_path):
    with zipfile.ZipFile(wheels["agentrund_client"]) as wheel:
        wheel.extractall(tmp_path)
        metadata = next(m for m in wheel.namelist() if m.endswith("/METADATA"))
        needed = [line for line in wheel.read(metadata).decode().splitlines() if "Requires-Dist" in line]
        assert all(line.endswith("; extra == 'otel'") for line in needed), needed
    # -I -S: an interpreter that sees the standard library and nothing else.
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); before = set(sys.modules); import agentrund_client\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - sys.stdlib_module_names))"
    )
    assert run("-I", "-S", "-c", code, cwd=tmp_path).strip() == "['agentrund_client']"


def test_versions_agree():
    root = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    client = tomllib.loads((REPOSITORY / "client" / "pyproject.toml").read_text())["project"]
    assert root["version"] == client["version"] == agentrund.__version__
    assert getattr(agentrund_client, "__version__", root["version"]) == root["version"]


@pytest.mark.parametrize("args", [["--help"], ["serve", "--help"], ["--version"]])
def test_help_loads_no_door(args):
    code = (
        "import sys\n"
        "from agentrund.cli.main import main\n"
        "try:\n"
        f"    main({args!r})\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0\n"
        "loaded = {name.split('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'grpc', 'google', 'uvloop', 'asyncio', 'orjson', 'msgspec'}))"
    )
    assert run("-c", code).splitlines()[-1] == "[]"
