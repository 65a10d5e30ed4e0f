"""A busy OTLP sender that keeps a record of what was acknowledged: ``otlp_busy.py DISCOVERY NAME COUNT RECORD``.

One log record a request; a request that is not answered is sent again until it is, to whatever address
the discovery file names then. The record gets a line ``<i>`` after each answer.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import grpc
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from support.otlp_build import any_value, logs
from support.otlp_send import send


def body(name: str, i: int) -> bytes:
    record = LogRecord(time_unix_nano=time.time_ns(), body=any_value(f"{name} {i}"))
    return logs(record, resource={"service.name": name, "service.instance.id": name})


def deliver(discovery: Path, data: bytes) -> None:
    while True:
        try:
            send(json.loads(discovery.read_text())["otlp_grpc"], "logs", data)
        except (grpc.RpcError, OSError, ValueError):
            time.sleep(0.05)  # away, or not there yet
        else:
            return


def main() -> None:
    discovery, name, count, record_path = sys.argv[1:5]
    record = os.open(record_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for i in range(int(count)):
        deliver(Path(discovery), body(name, i))
        os.write(record, b"%d\n" % i)


if __name__ == "__main__":
    main()
