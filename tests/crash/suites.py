"""Rows of the table that are test modules: their faults are made by hand, one by one, not drawn at random."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crash.engine import Score
from crash.oracle import Violation

PROJECT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Suite:
    """Test modules that make one kind of fault, slow tests included."""

    name: str
    about: str
    paths: tuple[str, ...]

    def play(self, seed: int) -> Score:
        """Run them; each test is a trial."""
        score = Score(self.name, seed)
        command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", *self.paths]
        # Wide enough for the reason of a failure.
        env = {**os.environ, "COLUMNS": "400"}
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, env=env)
        counts = {
            word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", done.stdout)
        }
        failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
        score.trials = counts.get("passed", 0) + failed
        if failed or done.returncode:
            lines = re.findall(r"^(?:FAILED|ERROR) .*", done.stdout, re.MULTILINE)
            score.violations += [Violation("test", line, "") for line in lines or [done.stdout[-600:]]]
        if counts.get("skipped"):
            score.note = f"{counts['skipped']} skipped"
        return score
