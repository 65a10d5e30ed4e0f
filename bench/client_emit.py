"""What a call of the thin client costs in the agent, against json + write + flush and an OTel span."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.server import Server

CALLS = 10_000
ROUNDS = 5

PROGRAM = """
import json, os, sys, time
variant, calls = sys.argv[1], int(sys.argv[2])
text = "x" * 900
if variant == "client":
    import agentrund_client as agentrund
    run = agentrund.run()
    emit = lambda i: agentrund.log(text, i=i)
elif variant == "json":
    file = open(sys.argv[3], "a")
    def emit(i):
        payload = {"level": "INFO", "message": text, "i": i}
        file.write(json.dumps({"n": i, "type": "log", "ts": time.time(), "payload": payload}) + "\\n")
        file.flush()
else:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    class Drop(SpanExporter):
        def export(self, spans): return SpanExportResult.SUCCESS
    provider = TracerProvider(); provider.add_span_processor(BatchSpanProcessor(Drop()))
    tracer = provider.get_tracer("bench")
    def emit(i):
        with tracer.start_as_current_span("step", attributes={"text": text, "i": i}): pass
for i in range(200): emit(i)
before = time.process_time()
for i in range(calls):
    emit(i)
    if i % 100 == 99: time.sleep(0.002)
print((time.process_time() - before) / calls * 1e6)
sys.stdout.flush()
os._exit(0)
"""


def measure() -> dict[str, float]:
    """Medians of interleaved rounds, process CPU in microseconds a call."""
    found: dict[str, list[float]] = {"client": [], "json": [], "otel": []}
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder)) as server:
        env = {**os.environ, "AGENTRUND_SOCKET": str(server.socket), "AGENTRUND_SPOOL": f"{folder}/spool"}
        for _ in range(ROUNDS):
            for variant, values in found.items():
                done = subprocess.run(
                    [sys.executable, "-c", PROGRAM, variant, str(CALLS), f"{folder}/log"],
                    capture_output=True,
                    text=True,
                    env=env,
                    check=True,
                )
                values.append(float(done.stdout))
    return {
        **{f"{name}_us": round(statistics.median(values), 1) for name, values in found.items()},
        "client_v_json": _ratio(found["client"], found["json"]),
        "client_v_otel": _ratio(found["client"], found["otel"]),
    }


def _ratio(one: list[float], other: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(one, other, strict=True)), 3)


def import_ms() -> dict[str, float]:
    """CPU milliseconds over a bare interpreter, median of paired rounds: the client, and what it stands on.

    With bytecode, as an installed package has it: the first round writes it and is not counted.
    """
    cost = "import time; before = time.process_time(); {}; print((time.process_time() - before) * 1000)"
    found: dict[str, list[float]] = {"client": [], "stdlib": []}
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        for counted in [False] + [True] * 9:
            bare, client, stdlib = (
                float(
                    subprocess.run(
                        [sys.executable, "-c", cost.format(what)],
                        capture_output=True,
                        text=True,
                        env=env,
                        check=True,
                    ).stdout
                )
                for what in ("pass", "import agentrund_client", "import json, socket, threading, contextvars")
            )
            if counted:
                found["client"].append(client - bare)
                found["stdlib"].append(stdlib - bare)
    return {
        **{f"{name}_ms": round(statistics.median(values), 1) for name, values in found.items()},
        "client_v_stdlib": _ratio(found["client"], found["stdlib"]),
    }
