"""The OTLP side put together: journal, worker, gRPC and HTTP listeners."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from agentrund.formats import layout
from agentrund.model.errors import Unavailable
from agentrund.model.event import Json
from agentrund.receivers import control_grpc
from agentrund.receivers.bearer import Bearer
from agentrund.receivers.budget import Budget
from agentrund.receivers.http_server import HttpServer, listen
from agentrund.receivers.otlp_grpc import OtlpGrpcServer
from agentrund.receivers.otlp_http import OtlpHttpApp
from agentrund.sequencer.otlp_runs import OtlpRuns
from agentrund.service import forwarding, port_owner
from agentrund.service.access import Access
from agentrund.service.config import Settings
from agentrund.service.control import Control
from agentrund.service.exposure import Demands
from agentrund.service.metrics import MetricsWriter
from agentrund.service.otlp_replay import OtlpReplay
from agentrund.service.otlp_runner import OtlpRunner
from agentrund.service.otlp_service import OtlpService
from agentrund.service.peer_finder import PeerFinder
from agentrund.service.process_watch import ProcessWatch
from agentrund.service.rarely import Rarely
from agentrund.service.run_actor import RunActor
from agentrund.service.runs import Runs
from agentrund.service.settings_types import Address
from agentrund.service.wire_file import WireFile
from agentrund.store.intake import Intake

log: Final = logging.getLogger(__name__)

STOP_GRACE_S: Final = 1.0
"""Calls under way get this long at a stop; a store that has begun is always waited for."""


class OtlpDoor:
    """OTLP/gRPC on one address, OTLP/HTTP on another."""

    def __init__(
        self,
        settings: Settings,
        runs: Runs,
        watch: ProcessWatch,
        budget: Budget,
        demands: Demands,
        *,
        report: Callable[[], Json],
    ) -> None:
        """``report`` is what ``agentrund status`` shows."""
        self._settings = settings
        self._demands = demands
        machine = OtlpRuns(settings.otlp_run_key, settings.idle_timeout, settings.spare_memory // 8)
        folder = partial(runs.root.state_folder, layout.INTAKE)
        quarantine = partial(runs.root.quarantine, "intake")
        intake = Intake(folder, quarantine, runs.clock.monotonic(), runs.root.held)
        self._metrics = MetricsWriter(runs)
        runner = OtlpRunner(runs, watch, intake, self._metrics)
        self._replay = OtlpReplay(runs, machine, runner, intake.pending(), self._metrics.stray)
        finder = PeerFinder()
        self._bearer = None if demands.token is None else Bearer(demands.token, runs.clock.monotonic)
        self.service = OtlpService(
            intake,
            machine,
            runner,
            finder,
            runs.clock,
            replay=self._replay,
            syncing=runs.syncing,
            budget=budget,
            max_request_bytes=settings.max_request_bytes,
            heartbeat_s=settings.heartbeat_timeout,
        )
        self._control = Control(
            runs,
            machine,
            runner,
            self.service,
            finder=finder,
            access=Access.of(settings.group),
            demands_token=demands.token is not None,
            heartbeat_s=settings.heartbeat_timeout,
            report=report,
        )
        self._forwarding = forwarding.from_settings(settings, runs, intake, folder)
        if self._forwarding is not None:
            self.service.on_stored = self._forwarding.poke
        self._mixed_up = Rarely("an OTLP sender has the wrong port", runs.clock.monotonic)
        self.wire_file = WireFile(runs, self.service.wire)
        self._grpc: OtlpGrpcServer | None = None
        self._http: HttpServer | None = None
        self._app: OtlpHttpApp | None = None
        self.grpc_address: str | None = None
        self.http_address: str | None = None

    def restore(self, recovered: Iterable[RunActor]) -> None:
        """Go on with runs that are open again."""
        self._replay.add(recovered)

    def work(self, missing: Iterable[str]) -> None:
        """Every run that was open is at hand, but for the ``missing``: the journal may be worked off."""
        self._replay.without(missing)
        self.service.work()

    async def start(self) -> None:
        """Work off the journal, and listen (where listeners are configured).

        Raises Unavailable where an address cannot be had, naming who has it.
        """
        self.service.start()
        if self._forwarding is not None:
            self._forwarding.start()
        if self._settings.otlp_grpc is not None:
            self.grpc_address = await self._start_grpc(self._settings.otlp_grpc)
        if self._settings.http is not None:
            self.http_address = await self._start_http(self._settings.http)

    async def _start_grpc(self, address: Address) -> str:
        self._grpc = OtlpGrpcServer(
            self.service,
            receive_bytes=self._settings.max_request_bytes,
            bearer=self._bearer,
            credentials=self._demands.credentials,
        )
        self._grpc.serve_too(control_grpc.handler(self._control, self._grpc.peer_of))
        try:
            port = await self._grpc.start(str(address))
        except Unavailable as error:
            raise _taken(address, "--otlp-grpc") or error from None
        return str(Address(address.host, port))

    async def _start_http(self, address: Address) -> str:
        try:
            listening = listen(address.host, address.port)
        except Unavailable as error:
            raise _taken(address, "--http") or error from None
        port = listening.getsockname()[1]
        self._app = OtlpHttpApp(
            self.service, port, receive_bytes=self._settings.max_request_bytes, bearer=self._bearer
        )
        self._http = HttpServer(self._app, listening, self._demands.tls, self._refuse_grpc)
        await self._http.start()
        return str(Address(address.host, port))

    def _refuse_grpc(self, peer: str) -> str:
        """What somebody is told who speaks gRPC at the HTTP port."""
        self.service.wire.note_grpc_on_http()
        where = f"gRPC goes to {self.grpc_address}" if self.grpc_address else "there is no gRPC port here"
        message = f"{self.http_address} is the HTTP port, and this is HTTP/2 as gRPC speaks it; {where}"
        self._mixed_up.warn(f"{peer}: {message}")
        return message

    def environment(self) -> list[str]:
        """What an exporter has to be told, as ``NAME=value``; the token is named, not shown."""
        address, protocol = self.grpc_address, "grpc"
        if address is None:
            address, protocol = self.http_address, "http/protobuf"
        if address is None:
            return []
        scheme = "http" if self._demands.tls is None else "https"
        lines = [f"OTEL_EXPORTER_OTLP_ENDPOINT={scheme}://{address}"]
        lines.append(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}")
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
            "unauthenticated": 0 if self._bearer is None else self._bearer.refused,
        }

    @property
    def forwarding(self) -> Json | None:
        """What ``status`` shows of forwarding; None where nothing is forwarded."""
        return None if self._forwarding is None else self._forwarding.status()

    async def stop(self) -> None:
        """Stop listening, work off what was acknowledged."""
        doors = [door.stop(STOP_GRACE_S) for door in (self._grpc, self._http) if door is not None]
        await asyncio.gather(*doors)
        if self._app is not None:
            await self._app.settled()
        if self._forwarding is not None:
            await self._forwarding.stop()
        self._control.close()
        await self.service.stop()
        self.wire_file.save()
        self._metrics.close()


def _taken(listen: Address, flag: str) -> Unavailable | None:
    """The error that names who has the address, None where nobody seems to."""
    owner = port_owner.owner(listen.host, listen.port)
    if owner is None:
        return None
    return Unavailable(
        f"{listen} is taken by {owner}",
        hint=f"stop it, or choose another with {flag} 127.0.0.1:0 (a free port) or {flag} off",
    )
