"""``python -m crash``: play the scenarios, print a table, end with 3 if an invariant was violated."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache, partial
from pathlib import Path
from typing import Final

from crash import engine, mutants, snapshots, syscalls
from crash.catalogue import SCENARIOS, SUITES
from crash.engine import Score

VIOLATED: Final = 3
"""Exit code: not the 1 of a harness that broke."""

Row = tuple[str, Callable[[], Score]]


@cache
def kept() -> Path:
    """Where the folders of failed trials are kept."""
    return Path(tempfile.mkdtemp(prefix="crash-kept-"))


def rows(seed: int, *, full: bool) -> Iterator[Row]:
    """Everything there is to play, by name."""
    # The tests of the default selection run by themselves; here the long ones are played too. They come first:
    # one of them takes as long as all the rest.
    for suite in SUITES if full else ():
        yield suite.name, partial(suite.play, seed)
    for scenario in SCENARIOS:
        if scenario.disk is not None and (os.geteuid() or shutil.which("mount") is None):
            continue
        rounds = scenario.full if full else scenario.short
        yield scenario.name, partial(engine.play, scenario, seed, rounds, kept)
    if syscalls.available():
        for sync, name in syscalls.NAMES.items():
            play = partial(syscalls.play, sync, seed)
            yield name, partial(play, 400 if full else 9, every=full, kept=kept)
    yield "prefixes", partial(snapshots.prefixes, seed, 1 << 20 if full else 200, kept=kept)
    yield "damage", partial(snapshots.damage, seed, 2000 if full else 150, kept=kept)


def timed(row: Row) -> tuple[Score, float]:
    """Play one row; a harness that breaks is said with the row's name."""
    began = time.monotonic()
    try:
        return row[1](), time.monotonic() - began
    except Exception as error:
        raise RuntimeError(f"{row[0]} could not be played") from error


def found(score: Score) -> int:
    """Violations, without the notes on where their folders are kept."""
    return sum(violation.invariant != "kept" for violation in score.violations)


def show(score: Score, seconds: float) -> None:
    """One row of the table, and what was wrong below it."""
    print(
        f"| {score.name:26} | {score.trials:6} | {found(score):10} | {seconds:5.0f} s | {score.note} |",
        flush=True,
    )
    for violation in score.violations[:20]:
        print(f"    {str(violation)[:1200]}", flush=True)


def main() -> int:
    """Parse the arguments, play, print."""
    parser = argparse.ArgumentParser(prog="python -m crash", description=__doc__)
    parser.add_argument("--full", action="store_true", help="every point and every round; else a short form")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="play a run again")
    parser.add_argument("--jobs", type=int, default=1, help="rows played at once")
    parser.add_argument("name", nargs="*", help="only these rows")
    args = parser.parse_args()
    mutants.apply(os.environ.get(mutants.VARIABLE))
    chosen = [row for row in rows(args.seed, full=args.full) if not args.name or row[0] in args.name]
    unknown = set(args.name) - {row[0] for row in chosen}
    if unknown:
        parser.error(f"no row named {', '.join(sorted(unknown))}")
    print(f"seed {args.seed} (--seed {args.seed} plays it again)\n")
    print(f"| {'scenario':26} | trials | violations |    time | |\n|---|---|---|---|---|", flush=True)
    with ThreadPoolExecutor(args.jobs) as pool:
        scores = []
        for played in as_completed([pool.submit(timed, row) for row in chosen]):
            score, seconds = played.result()
            show(score, seconds)
            scores.append(score)
    violations = sum(map(found, scores))
    trials = sum(score.trials for score in scores)
    print(f"\n{trials} trials, {violations} violations")
    if violations:
        print(f"what is left of the failed trials: {kept()}")
    return VIOLATED if violations else 0


if __name__ == "__main__":
    sys.exit(main())
