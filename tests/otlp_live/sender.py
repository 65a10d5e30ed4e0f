"""One process of a recorded program: sends what it is given, over a connection for each recorded one.

``sender.py DOOR ADDRESS``. A request on stdin is a line of JSON (``conn``, ``signal``, ``gzip``, ``size``)
and ``size`` bytes; its answer is a line on stdout: a JSON string, empty where all of it was taken. At the
end of stdin the process ends with exit code 0.
"""

from __future__ import annotations

import gzip
import http.client
import json
import sys
from typing import Any, Protocol

PATIENCE_S = 60
SERVICES = {"traces": "trace.v1.Trace", "logs": "logs.v1.Logs", "metrics": "metrics.v1.Metrics"}
TYPES = {"protobuf": "application/x-protobuf", "json": "application/json"}
NOTHING_TO_SAY = (b"", b"{}")
"""A success without ``partial_success``."""


class Connection(Protocol):
    """A way to the collector."""

    def export(self, signal: str, body: bytes, *, compress: bool) -> str:
        """Send a request; returns why it, or a part of it, was not taken."""


class Grpc:
    """A channel that shares its connection with no other."""

    def __init__(self, address: str) -> None:
        import grpc

        self._grpc = grpc
        options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(address, options=options)

    def export(self, signal: str, body: bytes, *, compress: bool) -> str:
        call = self._channel.unary_unary(f"/opentelemetry.proto.collector.{SERVICES[signal]}Service/Export")
        compression = self._grpc.Compression.Gzip if compress else None
        try:
            answer = call(body, timeout=PATIENCE_S, compression=compression)
        except self._grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
        return "" if answer in NOTHING_TO_SAY else f"partial success: {answer!r}"


class Http:
    """A connection that is kept."""

    def __init__(self, address: str, kind: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
        self._type = TYPES[kind]

    def export(self, signal: str, body: bytes, *, compress: bool) -> str:
        headers = {"content-type": self._type} | ({"content-encoding": "gzip"} if compress else {})
        sent = gzip.compress(body) if compress else body
        try:
            self._connection.request("POST", f"/v1/{signal}", sent, headers)
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            return f"no answer: {error!r}"
        if response.status != http.HTTPStatus.OK:
            return f"{response.status}: {answer!r}"
        return "" if answer in NOTHING_TO_SAY else f"partial success: {answer!r}"


def main() -> None:
    """Send until there is nothing more to send."""
    door, address = sys.argv[1:]
    connections: dict[int, Connection] = {}
    for line in sys.stdin.buffer:
        order: dict[str, Any] = json.loads(line)
        body = sys.stdin.buffer.read(order["size"])
        connection = connections.get(order["conn"])
        if connection is None:
            connection = Grpc(address) if door == "grpc" else Http(address, door)
            connections[order["conn"]] = connection
        print(json.dumps(connection.export(order["signal"], body, compress=order["gzip"])), flush=True)


if __name__ == "__main__":
    main()
