"""``make fuzz``: every target for ``FUZZ_S`` seconds each, guided by coverage, and a table of what was found.

``python -m fuzz TARGET FILE`` (with ``PYTHONPATH=tests``) runs one target once on one file: that is how a
finding is looked at.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path("build/fuzz")
TARGETS = ("stream_line", "strict_json", "otlp_request", "intake_segment", "trace", "index_row", "root")
LONGEST = 1 << 16
LONGEST_OF = {"root": 1 << 12, "trace": 1 << 13}
"""Where an input is read by all there is, or every line of it rendered and counted."""
HANG_S = 20
"""One input that takes longer is a finding."""


def work(name: str, arguments: list[str]) -> None:
    """Be the process that libFuzzer runs in."""
    import atheris

    with atheris.instrument_imports(include=["agentrund"], enable_loader_override=False):
        from fuzz import targets
    logging.disable()  # what is wrong with an input is said at length, which takes longer than to find it

    def mutator(data: bytes, max_size: int, seed: int) -> bytes:
        """Every other input is changed in what it says, and not in its bytes."""
        if seed % 2:
            return targets.structured(name, data, seed)[:max_size]
        return atheris.Mutate(data, max_size)

    atheris.Setup([name, *arguments], targets.target(name), custom_mutator=mutator)
    atheris.Fuzz()


def campaign(seconds: str) -> int:
    """Run every target; returns how many inputs failed."""
    from fuzz import targets

    total = 0
    for name, inputs in targets.seeds().items():
        corpus, crashes = FOLDER / "corpus" / name, FOLDER / "findings"
        corpus.mkdir(parents=True, exist_ok=True)
        crashes.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(inputs):
            (corpus / f"seed-{number}").write_bytes(data)
        done = subprocess.run(
            [sys.executable, "-m", "fuzz", name, str(corpus), f"-max_total_time={seconds}", f"-max_len={LONGEST_OF.get(name, LONGEST)}",
             f"-timeout={HANG_S}", f"-artifact_prefix={crashes}/{name}-", "-print_final_stats=1"],
            check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        executed = re.findall(r"number_of_executed_units: *(\d+)", done.stdout)
        found = re.findall(r"Test unit written to (\S+)", done.stdout)
        total += len(found)
        (FOLDER / f"{name}.log").write_text(done.stdout)
        print(
            f"{name:<16}{executed[-1] if executed else '?':>12} executions  {len(found)} findings", flush=True
        )
        for path in found:
            print(f"  look at it: PYTHONPATH=tests {sys.executable} -m fuzz {name} {path}", flush=True)
        if done.returncode and not found:
            print(f"  ended with {done.returncode}: {FOLDER / name}.log says why", flush=True)
            total += 1
    return total


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(sys.argv[1], sys.argv[2:])
    else:
        sys.exit(min(1, campaign(os.environ.get("FUZZ_S", "60"))))
