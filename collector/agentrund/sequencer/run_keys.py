"""Which run the items of a trace belong to.

The first that fits: an explicit run id, a session id anywhere in the trace, the trace where an agent or step
is its root, the only open run of the process for items that say nothing, the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from agentrund.model.otlp import Peer, Resource
from agentrund.sequencer.otlp_commands import BY_PROCESS, BY_RUN, BY_SESSION, BY_TRACE, RunKey
from agentrund.sequencer.otlp_run import OtlpRun
from agentrund.sequencer.otlp_trace import Trace

AUTO: Final = "auto"
RUN_ATTRIBUTE: Final = "agentrund.run_id"


def named_run(peer: Peer, resource: Resource) -> str | None:
    """The run that a sender names itself."""
    run_id = peer.run_id or resource.attributes.get(RUN_ATTRIBUTE)
    return run_id if isinstance(run_id, str) and run_id else None


class RunKeys:
    """The rules under a ``setting`` of ``otlp_run_key``."""

    def __init__(self, setting: str) -> None:
        self._setting = setting

    def of(
        self, trace: Trace, source: str, sessions: Mapping[str, RunKey], runs: Iterable[OtlpRun]
    ) -> tuple[RunKey, bool]:
        """Which run, and whether the trace is bound to it: where only logs came, its spans may say more.

        ``sessions`` are the runs that have one, ``runs`` all of them.
        """
        traceless = trace.is_process
        if trace.run_id is not None:
            return RunKey(BY_RUN, trace.run_id), True
        if self._by_process(trace):
            return RunKey(BY_PROCESS, source), not traceless
        if trace.session is not None and self._setting != BY_TRACE:
            return sessions.get(trace.session, RunKey(BY_SESSION, trace.session)), not traceless
        if self._setting == AUTO:
            return self._by_content(trace, source, runs)
        return RunKey(BY_TRACE, trace.id), True

    @staticmethod
    def _by_content(trace: Trace, source: str, runs: Iterable[OtlpRun]) -> tuple[RunKey, bool]:
        """The run of a trace that names none: by what its root is."""
        if trace.tree.is_detail:
            living = [run for run in runs if not run.ended and run.members.get(source)]
            if len(living) == 1:
                return living[0].key, False
            if trace.is_process:
                return RunKey(BY_PROCESS, source), False
        if trace.tree.is_bare_call:
            return RunKey(BY_PROCESS, source), True
        return RunKey(BY_TRACE, trace.id), True

    def _by_process(self, trace: Trace) -> bool:
        """Whether the setting says so; ``auto`` and what a run is keyed by otherwise is ``of``'s."""
        if self._setting == BY_PROCESS:
            return True
        if self._setting == BY_TRACE:
            return trace.is_process
        return self._setting == BY_SESSION and trace.session is None
