"""Tells the collector when OpenTelemetry spans begin: `agentrund_client.otel.watch()`, one line to add.

An exporter sends a span when it ends, so what a killed program was at is the part that never comes. This
processor stands beside whatever exporter there is: it announces every span of an agent at once, in the form
of Logfire's pending spans, and says every few seconds that the process lives. The spans themselves must come
to the collector as well, by an exporter of the program's own. Needs `pip install agentrund-client[otel]`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from contextlib import suppress

from opentelemetry import trace
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context, attach, set_value
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    Gauge,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from agentrund_client._discover import disabled, socket_path
from agentrund_client._guard import notice as say

DEFAULT_ENDPOINT = "http://127.0.0.1:4318"
BEAT_S = 20.0
QUEUE = 2048
"""Announcements that wait at most: without a collector the oldest go."""
_OF_AGENTS = (
    *("gen_ai.", "llm.", "openinference.", "traceloop.", "langsmith.", "ai.", "mcp.", "logfire.", "tool."),
    *("agent.", "agentrund.", "session."),
)
"""What an attribute's name begins with where a span is more than plumbing."""
_NO_PARENT = "0" * 16
_SCOPE = InstrumentationScope("agentrund_client.otel")


def watch(provider: TracerProvider | None = None, *, endpoint: str | None = None) -> StartNotices | None:
    """Announce the spans of ``provider``, by default the global one.

    None where agentrund is switched off, or there is no SDK provider to watch, which is said on stderr.

    ``endpoint`` is the collector's HTTP address, by default $AGENTRUND_OTLP_ENDPOINT, else what the collector
    of this user says of itself, else http://127.0.0.1:4318.
    """
    if disabled():
        return None
    found = provider or trace.get_tracer_provider()
    if not isinstance(found, TracerProvider):
        say("otel", "no spans to watch: set up OpenTelemetry's tracer provider first, then call watch()")
        return None
    url = (endpoint or os.environ.get("AGENTRUND_OTLP_ENDPOINT") or _discovered()).rstrip("/")
    notices = StartNotices(
        OTLPSpanExporter(endpoint=f"{url}/v1/traces"),
        OTLPMetricExporter(endpoint=f"{url}/v1/metrics"),
        found.resource,
    )
    found.add_span_processor(notices)
    return notices


def _discovered() -> str:
    """The HTTP address in the file beside the collector's socket."""
    path = socket_path()
    if path is not None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            with open(f"{path.removesuffix('.sock')}.json", encoding="utf-8") as file:  # noqa: PTH123
                address = json.load(file)["http"]
            if isinstance(address, str):
                return f"http://{address}"
    return DEFAULT_ENDPOINT


class StartNotices(SpanProcessor):
    """Announces spans that begin, from a thread of its own; never raises into the program or blocks it."""

    def __init__(
        self, spans: SpanExporter, metrics: MetricExporter, resource: Resource, beat_s: float = BEAT_S
    ) -> None:
        self._spans = spans
        self._metrics = metrics
        self._resource = resource
        self._beat_s = beat_s
        self._ids = RandomIdGenerator()
        os.register_at_fork(after_in_child=self._begin)
        self._begin()

    def _begin(self) -> None:
        """With a thread: a forked child has none, and nothing of its parent's to tell."""
        self._waiting: deque[ReadableSpan | threading.Event] = deque(maxlen=QUEUE)
        self._wake = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="agentrund-notices", daemon=True)
        self._thread.start()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002
        """Queue its announcement."""
        if _is_of_an_agent(span):
            self._waiting.append(self._announced(span, span.get_span_context()))
            self._wake.set()

    def shutdown(self) -> None:
        """Send what waits, and end the thread."""
        self._over = True
        self._wake.set()
        self._thread.join(5.0)
        self._spans.shutdown()
        self._metrics.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Wait until what waits was sent."""
        sent = threading.Event()
        self._waiting.append(sent)
        self._wake.set()
        return sent.wait(timeout_millis / 1000)

    def _announced(self, span: ReadableSpan, context: SpanContext) -> ReadableSpan:
        """A pending span: it hangs below the one that has begun, and names that one's true parent."""
        own = self._ids.generate_span_id()
        attributes = dict(span.attributes or {})
        attributes["logfire.span_type"] = "pending_span"
        attributes["logfire.pending_parent_id"] = (
            _NO_PARENT if span.parent is None else f"{span.parent.span_id:016x}"
        )
        return ReadableSpan(
            name=span.name,
            context=SpanContext(context.trace_id, own, is_remote=False, trace_flags=context.trace_flags),
            parent=context,
            resource=span.resource,
            attributes=attributes,
            kind=span.kind,
            start_time=span.start_time,
            end_time=span.start_time,
            instrumentation_scope=span.instrumentation_scope,
        )

    def _run(self) -> None:
        # What sends must not be told of as the agent's own work.
        attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, value=True))
        while not self._over:
            beat = not self._wake.wait(self._beat_s)
            self._wake.clear()
            try:
                self._send(beat=beat)
            except Exception as error:  # noqa: BLE001 - an observer's fault is not the program's
                say("otel", f"start notices cannot be sent: {error}")

    def _send(self, *, beat: bool) -> None:
        batch: list[ReadableSpan] = []
        asked: list[threading.Event] = []
        while self._waiting:
            next_ = self._waiting.popleft()
            asked.append(next_) if isinstance(next_, threading.Event) else batch.append(next_)
        try:
            if batch:
                self._spans.export(batch)
            elif beat:
                self._metrics.export(_alive(self._resource))
        finally:
            for event in asked:
                event.set()


def _is_of_an_agent(span: Span) -> bool:
    """Whether it is a root, or says something of agents, models and tools."""
    if span.parent is None or span.parent.is_remote:
        return True
    return any(key.startswith(_OF_AGENTS) for key in span.attributes or ())


def _alive(resource: Resource) -> MetricsData:
    """A gauge that says: there is somebody, now. The same bytes again would be taken for a retry."""
    gauge = Gauge([NumberDataPoint({}, 0, time.time_ns(), 1)])
    metric = Metric("agentrund.alive", None, None, gauge)
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(_SCOPE, [metric], "")], "")])
