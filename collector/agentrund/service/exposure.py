"""What the OTLP listeners demand of those who call, and whether that is enough for where they listen.

On a loopback address nothing need be demanded; on any other a token or TLS, unless that is declined aloud.
What is set is demanded everywhere.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import grpc

from agentrund.model.errors import UsageError
from agentrund.service.config import Settings, refuse_readable

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Demands:
    """``token`` is the bearer token of each request; the others are of listeners with TLS: gRPC, HTTP."""

    token: str | None = None
    credentials: grpc.ServerCredentials | None = None
    tls: ssl.SSLContext | None = None


def demands(settings: Settings, *, insecure: bool) -> Demands:
    """What the settings demand. Raises UsageError where it cannot be, or is too little."""
    found = Demands(settings.token, *_tls(settings))
    for name, address in (("otlp_grpc", settings.otlp_grpc), ("http", settings.http)):
        if address is not None and not address.is_loopback:
            _judge(settings, f"{name} {address}", insecure=insecure)
    return found


def _judge(settings: Settings, listener: str, *, insecure: bool) -> None:
    """A listener that other machines can reach: say what that means, or raise UsageError."""
    if settings.token is None and settings.tls_cert is None and not insecure:
        raise UsageError(
            f"other machines can reach {listener}, and nothing is demanded of them",
            hint="set `token`, or `tls_cert` and `tls_key`; or take everything from everybody: --insecure",
        )
    if settings.token is None and settings.tls_client_ca is None:
        log.warning("%s takes data from whoever can reach it", listener)
    elif settings.tls_cert is None:
        log.warning("%s has no TLS: whoever listens on the way learns the token", listener)


def _tls(settings: Settings) -> tuple[grpc.ServerCredentials | None, ssl.SSLContext | None]:
    """The certificate, once for each library that serves with it."""
    cert, key, client_ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    if cert is None and key is None and client_ca is None:
        return None, None
    if cert is None or key is None:
        raise UsageError(
            f"`{'tls_cert' if cert is None else 'tls_key'}` is missing", hint="TLS needs tls_cert and tls_key"
        )
    context = _context(cert, key, client_ca)
    try:
        authorities = None if client_ca is None else client_ca.read_bytes()
        pairs = [(key.read_bytes(), cert.read_bytes())]
    except OSError as error:
        raise _unreadable(error) from error
    return grpc.ssl_server_credentials(pairs, authorities, require_client_auth=client_ca is not None), context


def _context(cert: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """Made first: gRPC says no more than that it cannot bind, this says what is wrong with the files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        refuse_readable(key, "key")
        context.load_cert_chain(cert, key, password=_no_password)
    except ssl.SSLError as error:
        raise UsageError(
            f"tls_cert {cert} and tls_key {key} are not a pair: {error.reason or error}",
            hint="both are PEM files, the key of the certificate and without a password",
        ) from error
    except OSError as error:
        raise _unreadable(error) from error
    if client_ca is None:
        return context
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(client_ca)
    except ssl.SSLError as error:
        raise UsageError(
            f"tls_client_ca {client_ca}: {error.reason or error}", hint="it is a PEM file of certificates"
        ) from error
    except OSError as error:
        raise _unreadable(error) from error
    return context


def _unreadable(error: OSError) -> UsageError:
    return UsageError(f"{error.filename}: cannot be read: {error.strerror}", hint="look at tls_*")


def _no_password() -> NoReturn:
    raise UsageError("tls_key has a password", hint="nobody is there to type it: name a key without one")
