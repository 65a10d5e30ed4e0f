"""Plays scenarios, one world after another, and keeps the score."""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from crash.oracle import Violation
from crash.scenario import Scenario
from crash.world import World


@dataclass(slots=True)
class Score:
    """What came of a scenario. ``seed`` plays it again."""

    name: str
    seed: int
    trials: int = 0
    violations: list[Violation] = field(default_factory=list)
    note: str = ""


def play(scenario: Scenario, seed: int, rounds: int, kept: Callable[[], Path]) -> Score:
    """Play a scenario ``rounds`` times. ``kept``: where the folders of a failed world go, asked when needed."""
    chance = random.Random(f"{scenario.name}/{seed}")
    score = Score(scenario.name, seed)
    restarts: list[float] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="crash-") as base:
            with World(scenario, chance, Path(base)) as world:
                try:
                    for step in scenario.steps:
                        step(world)
                    violations = world.judge()
                except Exception as error:
                    world.fail("play", f"{type(error).__name__}: {error}")
                    violations = world.violations
                if violations:
                    violations[-1:] = [violations[-1], Violation("kept", str(world.keep(kept())), "")]
            score.trials += world.trials
            score.violations += violations
            restarts += world.restarts_s
    if restarts:
        score.note = f"ready again in {statistics.median(restarts):.2f} s, {max(restarts):.2f} s at most"
    return score
