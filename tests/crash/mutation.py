"""``python -m crash.mutation``: switch one guard off at a time; what should notice must fail, each time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Final

from crash.mutants import MUTANTS, VARIABLE, Mutant
from crash.suites import PROJECT

VIOLATED: Final = 3
"""What ``python -m crash`` ends with."""
FAILED: Final = 1
"""What pytest ends with."""


def noticed(name: str, mutant: Mutant) -> bool:
    """Whether every row and test that should notice does. Raises RuntimeError where the check itself broke."""
    env = {
        **os.environ,
        VARIABLE: name,
        "AGENTRUND_TEST_MAIN": "crash.mutant",
        "PYTHONPATH": str(PROJECT / "tests"),
    }
    found = [_ends_with(VIOLATED, ["crash", row], env) for row in mutant.rows]
    pytest = ["pytest", "-q", "-x", "-m", "", "-p", "no:cacheprovider"]
    found += [_ends_with(FAILED, [*pytest, test], env) for test in mutant.tests]
    return all(found)


def _ends_with(code: int, command: list[str], env: dict[str, str]) -> bool:
    done = subprocess.run(
        [sys.executable, "-m", *command], env=env, cwd=PROJECT, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, code):
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.returncode == code


def main() -> int:
    """Try the named mutants, or all."""
    chosen = sys.argv[1:] or list(MUTANTS)
    missed = 0
    print(f"| {'guard switched off':22} | noticed by | noticed |    time |\n|---|---|---|---|", flush=True)
    for name in chosen:
        mutant = MUTANTS[name]
        began = time.monotonic()
        found = noticed(name, mutant)
        missed += not found
        where = ", ".join((*mutant.rows, *mutant.tests))
        print(
            f"| {name:22} | {where} | {'yes' if found else 'NO'} | {time.monotonic() - began:5.0f} s |",
            flush=True,
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
