"""A program that measures with the OpenTelemetry SDK: ``otel_measured.py ENDPOINT grpc|http MODE``.

``story``: an agent's span, a counter, and histograms of both kinds, exported when it ends: metrics first, as
many programs do. ``stream``: within a session, a point of ``ticks`` for each export, one export after the
other until standard input ends; it says the number of each that was acknowledged.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as MetricsOverHttp
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as SpansOverHttp
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    MetricExportResult,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

NEVER_MS = 3_600_000
DELTA = {Counter: AggregationTemporality.DELTA, Histogram: AggregationTemporality.CUMULATIVE}


def exporters(endpoint: str, door: str) -> tuple[Any, Any]:
    """Of metrics and of spans."""
    if door == "http":
        base = f"http://{endpoint}/v1"
        metrics = MetricsOverHttp(endpoint=f"{base}/metrics", preferred_temporality=DELTA)
        return metrics, SpansOverHttp(endpoint=f"{base}/traces")
    metrics = OTLPMetricExporter(endpoint=endpoint, insecure=True, preferred_temporality=DELTA)
    return metrics, OTLPSpanExporter(endpoint=endpoint, insecure=True)


def main() -> None:
    endpoint, door, mode = sys.argv[1:4]
    metrics, spans = exporters(endpoint, door)
    session = {"session.id": "measured"} if mode == "stream" else {}
    resource = Resource.create({"service.name": "measured", **session})
    reader = PeriodicExportingMetricReader(metrics, export_interval_millis=NEVER_MS)
    view = View(instrument_name="waits", aggregation=ExponentialBucketHistogramAggregation())
    meters = MeterProvider([reader], resource, views=[view])
    meter = meters.get_meter("test")
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(spans))
    with tracers.get_tracer("test").start_as_current_span(
        "invoke_agent planner", attributes={"gen_ai.operation.name": "invoke_agent"}
    ):
        if mode == "story":
            meter.create_counter("calls", "{call}", "calls made").add(3, {"model": "m"})
            for value in (0.5, 7.0, 9000.0):
                meter.create_histogram("durations", "ms").record(value)
                meter.create_histogram("waits", "ms").record(value)
    if mode == "stream":
        tracers.shutdown()
        stream(meter.create_counter("ticks"), reader, metrics)
    meters.shutdown()
    if mode == "story":
        tracers.shutdown()


def stream(ticks: Counter, reader: PeriodicExportingMetricReader, exporter: Any) -> None:
    results: list[MetricExportResult] = []
    export = exporter.export

    def noted(*args: Any, **keys: Any) -> MetricExportResult:
        results.append(export(*args, **keys))
        return results[-1]

    exporter.export = noted
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    n = 0
    while not ended.is_set():
        ticks.add(1, {"n": n})
        reader.force_flush()
        if results[-1] is MetricExportResult.SUCCESS:
            print(n, flush=True)  # noqa: T201 - what the test reads
        n += 1


if __name__ == "__main__":
    main()
