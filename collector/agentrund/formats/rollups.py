"""Costs that agents state for themselves and all within them: none may be counted twice.

Decides which roll-ups are outermost. Only asked where no leaf of the run states a cost.
"""

from __future__ import annotations

from agentrund.formats.steps import Step
from agentrund.model import kinds


class RollUps:
    """Adds up the outermost stated costs as agents end."""

    def __init__(self) -> None:
        self._total: float | None = None
        self._within: dict[int, float] = {}
        """Seq of an open agent to the sum stated so far by the agents within it."""

    def close(self, step: Step | None, cost: float | None) -> float | None:
        """An agent ended and stated ``cost``, or nothing; returns what is its own of it."""
        within = self._within.pop(step.seq, None) if step is not None else None
        if step is not None and step.covered:
            return None
        carried = within if cost is None else cost
        if carried is None:
            return None
        around = _open_agent_around(step)
        if around is None:
            self._total = (self._total or 0.0) + carried
        else:
            self._within[around.seq] = self._within.get(around.seq, 0.0) + carried
        if cost is None:
            return None
        if step is not None:
            step.covered = True
        return max(0.0, cost - (within or 0.0))

    def total(self) -> float | None:
        """The sum of the outermost; an agent that never ended counts by what was stated within it."""
        if not self._within:
            return self._total
        return (self._total or 0.0) + sum(self._within.values())


def _open_agent_around(step: Step | None) -> Step | None:
    around = step.parent if step is not None else None
    while around is not None and (around.closed or around.type != kinds.AGENT_START):
        around = around.parent
    return around
