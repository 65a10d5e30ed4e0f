"""A second OTLP backend, over HTTP. Blocking: for a thread of its own."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from agentrund import __version__
from agentrund.model.otlp import Encoding, IntakeRecord

TIMEOUT_S: Final = 10.0
RETRYABLE: Final = frozenset({429, 502, 503, 504})
"""After these a request is worth sending again (OTLP specification, "Retryable Response Codes")."""
_TYPES: Final = {Encoding.PROTOBUF: "application/x-protobuf", Encoding.JSON: "application/json"}
_TELL_BYTES: Final = 200


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the backend said. ``retry_s`` is None where it does not say when to come again."""

    taken: bool
    again: bool
    why: str = ""
    retry_s: float | None = None


class OtlpBackend:
    """``url`` without the signal's path; ``headers`` go with every request. One connection, kept."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self._tls = parts.scheme == "https"
        self._where = parts.netloc
        self._path = parts.path.rstrip("/")
        self._headers = {"user-agent": f"agentrund/{__version__}", **headers}
        self._connection: http.client.HTTPConnection | None = None

    def post(self, record: IntakeRecord) -> Verdict:
        """Send a request on, byte for byte as it came."""
        connection = self._connection or self._connect()
        try:
            self._connection = connection
            said = {"content-type": _TYPES[record.encoding], **self._headers}
            connection.request("POST", f"{self._path}/v1/{record.signal}", record.body, said)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection = None
            connection.close()
            return Verdict(taken=False, again=True, why=str(error) or type(error).__name__)
        if response.status < http.HTTPStatus.MULTIPLE_CHOICES:
            return Verdict(taken=True, again=False)
        why = f"HTTP {response.status}: {text[:_TELL_BYTES].decode('utf-8', 'replace')}"
        retry_s = _seconds(response.getheader("retry-after"))
        return Verdict(taken=False, again=response.status in RETRYABLE, why=why, retry_s=retry_s)

    def hang_up(self) -> None:
        """End a request under way; from any thread."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
        return kind(self._where, timeout=TIMEOUT_S)


def _seconds(text: str | None) -> float | None:
    """``Retry-After`` in seconds; its form as a date is not worth a parser here."""
    return float(text) if text is not None and text.isdecimal() else None
