"""``agentrund doctor``: the OTLP ports, and whether exporters of this environment speak to the right one."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from agentrund.service import port_owner
from agentrund.service.check import NOTE, OK, PROBLEM, Check
from agentrund.service.config import Settings
from agentrund.service.settings_types import Address

_ANSWER_S: Final = 2.0
_NAMES: Final = {"otlp_grpc": "OTLP/gRPC", "http": "OTLP/HTTP"}
_EXPORTER: Final = "OTEL_EXPORTER_OTLP_"
_SIGNALS: Final = ("", "TRACES_", "LOGS_", "METRICS_")
_HTTP: Final = "http/"


def ports(settings: Settings, status: Mapping[str, Any] | None) -> Iterator[Check]:
    """Whether somebody listens where exporters send; ``status`` is the answer of a collector, if any."""
    for setting, name in _NAMES.items():
        if status is None:
            address = getattr(settings, setting)
            yield _without_collector(name, address, setting)
        elif status.get(setting) is None:
            yield Check("ports", NOTE, f"{name} is off")
        else:
            yield _listening(name, str(status[setting]))


def _without_collector(name: str, address: Address | None, setting: str) -> Check:
    if address is None:
        return Check("ports", NOTE, f"{name} is off")
    holder = port_owner.owner(address.host, address.port)
    if holder is None:
        return Check("ports", OK, f"{name}: {address} is free")
    hint = f"stop it, or choose another port with --{setting.replace('_', '-')}"
    return Check("ports", PROBLEM, f"{name}: {address} is taken by {holder}", hint)


def _listening(name: str, address: str) -> Check:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
    except (OSError, ValueError) as error:
        return Check(
            "ports", PROBLEM, f"{name}: {address} cannot be reached: {error}", "look at the collector's log"
        )
    return Check("ports", OK, f"{name} listens on {address}")


def environment(
    environ: Mapping[str, str], settings: Settings, status: Mapping[str, Any] | None
) -> Iterator[Check]:
    """Exporters that would speak one protocol to the port of the other; nobody sees that at the gRPC port."""
    grpc, http = (_port(settings, status, setting) for setting in _NAMES)
    for signal in _SIGNALS:
        name = f"{_EXPORTER}{signal}ENDPOINT"
        endpoint = environ.get(name)
        protocol = environ.get(f"{_EXPORTER}{signal}PROTOCOL") or environ.get(f"{_EXPORTER}PROTOCOL")
        port = None if endpoint is None else _port_of(endpoint)
        if port is None or protocol is None:
            continue
        if port == grpc and protocol.startswith(_HTTP):
            message = f"{name}={endpoint} is the gRPC port, and the protocol is {protocol}"
            hint = f"set {_EXPORTER}PROTOCOL=grpc, or the port {http}"
            yield Check("environment", PROBLEM, message, hint)
        elif port == http and protocol == "grpc":
            message = f"{name}={endpoint} is the HTTP port, and the protocol is grpc"
            hint = f"set {_EXPORTER}PROTOCOL=http/protobuf, or the port {grpc}"
            yield Check("environment", PROBLEM, message, hint)


def _port(settings: Settings, status: Mapping[str, Any] | None, setting: str) -> int | None:
    if status is not None:
        return _port_of(f"//{status.get(setting)}")
    address = getattr(settings, setting)
    return None if address is None else int(address.port)


def _port_of(url: str) -> int | None:
    try:
        return urlsplit(url if "//" in url else f"//{url}").port
    except ValueError:
        return None
