"""The data points of a protobuf Metric, whole: histograms with all their buckets, exemplars too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as MetricMessage

from agentrund.model.event import Json
from agentrund.model.otlp import Metric, MetricItem, Resource, Scope
from agentrund.receivers.decode.otlp_values import TEMPORALITIES, Values, double

_NO_VALUE: Final = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK


def points(
    message: MetricMessage, resource: Resource, scope: Scope, *, notes: list[str], size: int, i: int
) -> Iterator[MetricItem | None]:
    """The data points of a metric of ``size`` bytes, numbered from ``i``.

    A metric without any gives one without values. None is a pause. ``notes`` is what had to be changed to
    read the metric.
    """
    kind = message.WhichOneof("data") or ""
    data: Any = getattr(message, kind) if kind else None
    metric = Metric(
        message.name,
        message.description,
        message.unit,
        kind,
        TEMPORALITIES.get(getattr(data, "aggregation_temporality", 0)),
        getattr(data, "is_monotonic", None),
        Values().attributes(message.metadata),
    )
    found = data.data_points if kind else ()
    if not found:
        yield MetricItem(i, resource, scope, metric, 0, 0, {}, None, notes, size)
    for n, point in enumerate(found, i):
        read = Values()
        attributes = yield from read.attributes_of(point.attributes, size)
        values = _VALUES[kind](point)
        if point.flags & _NO_VALUE:
            values["no_value"] = True
        if exemplars := getattr(point, "exemplars", None):
            values["exemplars"] = [_exemplar(exemplar, read) for exemplar in exemplars]
        repairs = [*notes, *read.notes()]
        start, time = point.start_time_unix_nano, point.time_unix_nano
        yield MetricItem(
            n, resource, scope, metric, start, time, attributes, values, repairs, size // len(found)
        )


def _number(point: Any) -> Json:
    kind = point.WhichOneof("value")
    if kind is None:
        return {"value": None}
    return {"value": point.as_int if kind == "as_int" else double(point.as_double)}


def _summed(point: Any) -> Json:
    """What both kinds of histogram have beside their buckets; min and max only where they were sent."""
    return {"count": point.count} | {
        name: double(getattr(point, name)) for name in ("sum", "min", "max") if point.HasField(name)
    }


def _histogram(point: Any) -> Json:
    return _summed(point) | {
        "bounds": [double(bound) for bound in point.explicit_bounds],
        "bucket_counts": list(point.bucket_counts),
    }


def _exponential(point: Any) -> Json:
    return _summed(point) | {
        "scale": point.scale,
        "zero_count": point.zero_count,
        "zero_threshold": double(point.zero_threshold),
        "positive": _buckets(point.positive),
        "negative": _buckets(point.negative),
    }


def _buckets(buckets: Any) -> Json:
    return {"offset": buckets.offset, "bucket_counts": list(buckets.bucket_counts)}


def _summary(point: Any) -> Json:
    return {
        "count": point.count,
        "sum": double(point.sum),
        "quantiles": [
            {"quantile": double(q.quantile), "value": double(q.value)} for q in point.quantile_values
        ],
    }


def _exemplar(exemplar: Any, read: Values) -> Json:
    return {
        "ts": exemplar.time_unix_nano / 1e9,
        **_number(exemplar),
        "trace": exemplar.trace_id.hex(),
        "span": exemplar.span_id.hex(),
        "attributes": read.attributes(exemplar.filtered_attributes),
    }


_VALUES: Final[dict[str, Callable[[Any], Json]]] = {
    "gauge": _number,
    "sum": _number,
    "histogram": _histogram,
    "exponential_histogram": _exponential,
    "summary": _summary,
}
