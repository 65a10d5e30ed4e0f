"""Commands beside a running collector, and the same ones after it has gone."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from support.daemon import Daemon
from support.run_folder import CRASHED, RUN, write_run

DERIVED = ("agent.logs", "outline.md", "analytics.json", "meta.json")


def test_status_and_the_discovery_file_agree(tmp_path):
    with Daemon(tmp_path) as daemon:
        told = json.loads(daemon.socket.with_suffix(".json").read_text())
        answer = json.loads(daemon.cli("status", "--json").stdout)
        for key in ("pid", "socket", "otlp_grpc", "root", "version", "started_at"):
            assert answer[key] == told[key]
        by_root = daemon.cli("status", "--root", str(daemon.root))
        assert str(daemon.process.pid) in by_root.stdout
        assert "slow lines" not in by_root.stdout
        assert "slow_lines" in answer
        assert re.search(r"^disk free +[\d.]+ [KMGT]iB$", by_root.stdout, re.MULTILINE)
        other = daemon.cli("status", "--root", str(tmp_path))
        assert (other.returncode, other.stdout) == (4, "")
        assert f"no collector holds {tmp_path}" in other.stderr
    assert daemon.cli("status").returncode == 4
    assert not daemon.socket.with_suffix(".json").exists()


def test_readers_find_the_root_of_a_running_collector(tmp_path):
    with Daemon(tmp_path) as daemon:
        env = {**daemon.env, "AGENTRUND_SOCKET": str(daemon.socket), "HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-m", "agentrund.cli.main", "runs"],
            capture_output=True, text=True, env=env, cwd=tmp_path, check=False, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, f"no runs in {daemon.root}\n")


def test_rebuild_and_reindex_with_and_without_a_collector(tmp_path):
    folder = write_run(tmp_path / "root", CRASHED)
    logs = (folder / "agent.logs").read_bytes()
    with Daemon(tmp_path) as daemon:
        assert daemon.cli("rebuild", RUN).stdout == f"rebuilt {RUN}\n"
        made = {name: (folder / name).read_bytes() for name in DERIVED}
        assert daemon.cli("rebuild", "nothing").returncode == 3
    assert made["agent.logs"] == logs
    for name in DERIVED:
        (folder / name).unlink()
    assert daemon.cli("rebuild", RUN).returncode == 0
    assert {name: (folder / name).read_bytes() for name in DERIVED} == made
    (tmp_path / "root" / "index.jsonl").unlink(missing_ok=True)
    assert daemon.cli("reindex").returncode == 0
    assert [row["run_id"] for row in daemon.rows()] == [RUN]
