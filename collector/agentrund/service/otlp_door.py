"""The OTLP side put together: journal, worker, gRPC server."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from agentrund.formats import layout
from agentrund.model.errors import Unavailable
from agentrund.model.event import Json
from agentrund.receivers.budget import Budget
from agentrund.receivers.otlp_grpc import OtlpGrpcServer
from agentrund.sequencer.otlp_runs import OtlpRuns
from agentrund.service import port_owner
from agentrund.service.config import Settings
from agentrund.service.exposure import Demands
from agentrund.service.otlp_replay import OtlpReplay
from agentrund.service.otlp_runner import OtlpRunner
from agentrund.service.otlp_service import OtlpService
from agentrund.service.peer_finder import PeerFinder
from agentrund.service.process_watch import ProcessWatch
from agentrund.service.run_actor import RunActor
from agentrund.service.runs import Runs
from agentrund.service.settings_types import Address
from agentrund.store.intake import Intake

log: Final = logging.getLogger(__name__)

STOP_GRACE_S: Final = 1.0
"""Calls under way get this long at a stop; a store that has begun is always waited for."""


class OtlpDoor:
    """OTLP/gRPC on one address."""

    def __init__(
        self, settings: Settings, runs: Runs, watch: ProcessWatch, budget: Budget, demands: Demands
    ) -> None:
        self._settings = settings
        self._demands = demands
        machine = OtlpRuns(settings.otlp_run_key, settings.idle_timeout, settings.max_memory // 8)
        folder = partial(runs.root.state_folder, layout.INTAKE)
        quarantine = partial(runs.root.quarantine, "intake")
        intake = Intake(folder, quarantine, runs.clock.monotonic(), runs.root.held)
        runner = OtlpRunner(runs, watch, intake)
        self._replay = OtlpReplay(runs, machine, runner, intake.pending())
        self._finder = PeerFinder()
        self.service = OtlpService(
            intake,
            machine,
            runner,
            self._finder,
            runs.clock,
            replay=self._replay,
            syncing=runs.syncing,
            budget=budget,
            max_request_bytes=settings.max_request_bytes,
        )
        self._server: OtlpGrpcServer | None = None
        self.address: str | None = None

    def restore(self, recovered: Iterable[RunActor]) -> None:
        """Go on with runs that are open again."""
        self._replay.add(recovered)

    def work(self, missing: Iterable[str]) -> None:
        """Every run that was open is at hand, but for the ``missing``: the journal may be worked off."""
        self._replay.without(missing)
        self.service.work()

    async def start(self) -> None:
        """Work off the journal, and listen (where a listener is configured).

        Raises Unavailable where the address cannot be had, naming who has it.
        """
        self.service.start()
        listen = self._settings.otlp_grpc
        if listen is None:
            return
        self._server = OtlpGrpcServer(
            self.service,
            receive_bytes=self._settings.max_request_bytes,
            token=self._demands.token,
            credentials=self._demands.credentials,
        )
        try:
            port = await self._server.start(str(listen))
        except Unavailable as error:
            raise _taken(listen) or error from None
        self._finder.port = port
        self.address = str(type(listen)(listen.host, port))

    def environment(self) -> list[str]:
        """What an exporter has to be told, as ``NAME=value``; the token is named, not shown."""
        tls = self._demands.credentials is not None
        lines = [f"OTEL_EXPORTER_OTLP_ENDPOINT={'https' if tls else 'http'}://{self.address}"]
        lines.append("OTEL_EXPORTER_OTLP_PROTOCOL=grpc")
        if self._demands.token is not None:
            lines.append("OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20$AGENTRUND_TOKEN")
        return lines

    def status(self) -> Json:
        """Counters for ``status``."""
        return {
            "requests": self.service.received,
            "duplicates": self.service.duplicates,
            "rejected": self.service.rejected,
            "refused": self.service.admission.refused,
            "outside": self.service.admission.waiting,
            "waiting": self.service.waiting,
            "unauthenticated": 0 if self._server is None else self._server.refused,
        }

    async def stop(self) -> None:
        """Stop listening, work off what was acknowledged."""
        if self._server is not None:
            await self._server.stop(STOP_GRACE_S)
        await self.service.stop()


def _taken(listen: Address) -> Unavailable | None:
    """The error that names who has the address, None where nobody seems to."""
    owner = port_owner.owner(listen.host, listen.port)
    if owner is None:
        return None
    return Unavailable(
        f"{listen} is taken by {owner}",
        hint="stop it, or choose another with --otlp-grpc 127.0.0.1:0 (a free port) or --otlp-grpc off",
    )
