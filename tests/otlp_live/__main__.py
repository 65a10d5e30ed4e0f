"""``python -m otlp_live``: play every capture through every door, print a table, end with 3 where one differs."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from otlp_live.play import ARRANGEMENTS, DOORS, Case, Outcome, apart, play
from support.otlp_captures import captures_folder, load, names

DIFFERS: Final = 3
"""Exit code: not the 1 of a harness that broke."""
CODEX: Final = "codex-0.171.0-full-grpc"
A_FEW_DOZEN: Final = 36
"""Events that a full prompt of Codex, 537 spans and 28 log records, may add."""
COLUMNS: Final = ("capture", "requests", "runs", "events", "llm calls", "tool calls", "end", "held")


def main() -> int:
    """Parse the arguments, play, print."""
    parser = argparse.ArgumentParser(prog="python -m otlp_live", description=__doc__)
    parser.add_argument("name", nargs="*", help="only these captures")
    args = parser.parse_args()
    if captures_folder() is None:
        parser.error(
            "the recorded captures are not here: AGENTRUND_FIXTURES names the folder that otlp/ is in"
        )
    if unknown := set(args.name) - set(names()):
        parser.error(f"no capture named {', '.join(sorted(unknown))}")
    captures = apart(load(name) for name in args.name or names())
    outcomes: dict[str, list[Outcome]] = {capture.name: [] for capture in captures}
    problems: list[str] = []
    for door in DOORS:
        for arrangement in ARRANGEMENTS:
            began = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="otlp-live-") as base:
                played = play([Case(capture, door, arrangement) for capture in captures], Path(base))
            problems += [f"{door}, {arrangement}: {problem}" for problem in played.problems]
            for outcome in played.outcomes:
                outcomes[outcome.case.capture.name].append(outcome)
            held = sum(not outcome.differences() for outcome in played.outcomes)
            seconds = time.monotonic() - began
            print(f"{door}, {arrangement}: {held} of {len(captures)} held, {seconds:.0f} s", flush=True)
    problems += codex(outcomes.get(CODEX, []))
    table(outcomes)
    summary(outcomes, problems)
    differ = any(outcome.differences() for found in outcomes.values() for outcome in found)
    return DIFFERS if differ or problems else 0


def codex(outcomes: list[Outcome]) -> list[str]:
    """How many events Codex adds, where that is too many."""
    most = max((outcome.events for outcome in outcomes), default=0)
    return [f"{CODEX} adds {most} events"] if most > A_FEW_DOZEN else []


def table(outcomes: dict[str, list[Outcome]]) -> None:
    """One row a capture; what differed stands below it."""
    print(f"\n| {COLUMNS[0]:44} | {' | '.join(COLUMNS[1:])} |\n{'|---' * len(COLUMNS)}|")
    for name, found in outcomes.items():
        truths = [outcome.found for outcome in found]
        cells = [
            span(outcome.requests for outcome in found),
            span(truth["runs"] for truth in truths),
            span(outcome.events for outcome in found),
            span(truth["llm_calls"] for truth in truths),
            span(len(truth["tool_calls"]) for truth in truths),
            ", ".join(sorted({truth["run_status"] or "none" for truth in truths})),
            f"{sum(not outcome.differences() for outcome in found)} of {len(found)}",
        ]
        print(f"| {name:44} | {' | '.join(cells)} |")
        for outcome in found:
            for difference in outcome.differences():
                print(f"    {outcome.case.door}, {outcome.case.arrangement}: {difference}")


def summary(outcomes: dict[str, list[Outcome]], problems: list[str]) -> None:
    """What held by door and arrangement, the two questions of its own, and what is wrong as a whole."""
    every = [outcome for found in outcomes.values() for outcome in found]
    print(f"\n| door | {' | '.join(ARRANGEMENTS)} |\n{'|---' * (len(ARRANGEMENTS) + 1)}|")
    for door in DOORS:
        cells = []
        for arrangement in ARRANGEMENTS:
            found = [o for o in every if (o.case.door, o.case.arrangement) == (door, arrangement)]
            cells.append(f"{sum(not outcome.differences() for outcome in found)} of {len(found)}")
        print(f"| {door} | {' | '.join(cells)} |")
    if CODEX in outcomes:
        print(
            f"\nevents that {CODEX} adds: {span(o.events for o in outcomes[CODEX])} (at most {A_FEW_DOZEN})"
        )
    refused = sum(len(outcome.refused) for outcome in every)
    print(f"requests that were not taken: {refused} of {sum(outcome.requests for outcome in every)}")
    print("\n".join(problems))


def span(numbers: Iterable[int]) -> str:
    """The least and the most of some numbers."""
    found = sorted(set(numbers))
    return str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"


if __name__ == "__main__":
    sys.exit(main())
