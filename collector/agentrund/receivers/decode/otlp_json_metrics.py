"""The data points of an OTLP/JSON metric, as ``otlp_protobuf_metrics`` makes them of protobuf."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, DataPointFlags

from agentrund.model.event import Json
from agentrund.model.otlp import BadItem, Metric, MetricItem, Resource, Scope, Signal
from agentrund.receivers.decode.otlp_json_values import (
    JsonValues,
    identifier,
    integer,
    items,
    number,
    text,
    whole,
)
from agentrund.receivers.decode.otlp_values import TEMPORALITIES
from agentrund.receivers.decode.protobuf_wire import Malformed

_NO_VALUE: Final = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK


class _Kind(NamedTuple):
    """How a kind of metric is called on the wire, and how a point of it is read."""

    key: str
    values: Callable[[Any], Json]


@dataclass(slots=True, frozen=True)
class _Around:
    """What the points of one metric share."""

    resource: Resource
    scope: Scope
    metric: Metric
    notes: list[str]
    size: int


def points(
    fields: Any, resource: Resource, scope: Scope, *, notes: list[str], size: int, i: int
) -> Iterator[MetricItem | BadItem]:
    """The data points of a metric, numbered from ``i``; one without values where it has none.

    ``notes`` is what had to be changed to read the metric, ``size`` about how many bytes it has.
    Raises Malformed where the metric itself cannot be read.
    """
    name = text(fields, "name")
    kind = next((kind for kind, of in _KINDS.items() if fields.get(of.key) is not None), "")
    data = fields.get(_KINDS[kind].key) if kind else {}
    temporality = whole(data, "aggregationTemporality", AggregationTemporality.Value)
    metric = Metric(
        name,
        text(fields, "description"),
        text(fields, "unit"),
        kind,
        TEMPORALITIES.get(temporality),
        data.get("isMonotonic") is True if kind == "sum" else None,
        JsonValues().attributes(items(fields, "metadata")),
    )
    found = items(data, "dataPoints", of_kind=object)
    around = _Around(resource, scope, metric, notes, size // max(1, len(found)))
    if not found:
        yield MetricItem(i, resource, scope, metric, 0, 0, {}, None, notes, size)
    for n, point in enumerate(found, i):
        try:
            yield _point(point, n, around)
        except Malformed as error:
            yield BadItem(n, resource, Signal.METRICS, str(error), around.size)


def _point(fields: Any, i: int, around: _Around) -> MetricItem:
    read = JsonValues()
    attributes = read.attributes(items(fields, "attributes"))
    values = _KINDS[around.metric.kind].values(fields)
    if whole(fields, "flags") & _NO_VALUE:
        values["no_value"] = True
    if exemplars := items(fields, "exemplars"):
        values["exemplars"] = [_exemplar(exemplar, read) for exemplar in exemplars]
    return MetricItem(
        i,
        around.resource,
        around.scope,
        around.metric,
        whole(fields, "startTimeUnixNano"),
        whole(fields, "timeUnixNano"),
        attributes,
        values,
        [*around.notes, *read.notes()],
        around.size,
    )


def _number(point: Any) -> Json:
    value = integer(point, "asInt")
    return {"value": number(point.get("asDouble"), "asDouble") if value is None else value}


def _summed(point: Any) -> Json:
    found: Json = {"count": whole(point, "count")}
    for name in ("sum", "min", "max"):
        if (value := number(point.get(name), name)) is not None:
            found[name] = value
    return found


def _histogram(point: Any) -> Json:
    bounds = items(point, "explicitBounds", of_kind=object)
    return _summed(point) | {
        "bounds": [number(bound, "explicitBounds") for bound in bounds],
        "bucket_counts": _counts(point),
    }


def _exponential(point: Any) -> Json:
    return _summed(point) | {
        "scale": integer(point, "scale") or 0,
        "zero_count": whole(point, "zeroCount"),
        "zero_threshold": number(point.get("zeroThreshold"), "zeroThreshold") or 0.0,
        "positive": _buckets(point.get("positive") or {}),
        "negative": _buckets(point.get("negative") or {}),
    }


def _buckets(buckets: Any) -> Json:
    return {"offset": integer(buckets, "offset") or 0, "bucket_counts": _counts(buckets)}


def _counts(of: Any) -> list[int]:
    counts = items(of, "bucketCounts", of_kind=object)
    if None in counts:
        raise Malformed("`bucketCounts` has a null")
    return [whole({"bucketCounts": count}, "bucketCounts") for count in counts]


def _summary(point: Any) -> Json:
    return {
        "count": whole(point, "count"),
        "sum": number(point.get("sum"), "sum") or 0.0,
        "quantiles": [
            {name: number(q.get(name), name) or 0.0 for name in ("quantile", "value")}
            for q in items(point, "quantileValues")
        ],
    }


def _exemplar(exemplar: Any, read: JsonValues) -> Json:
    return {
        "ts": whole(exemplar, "timeUnixNano") / 1e9,
        **_number(exemplar),
        "trace": identifier(exemplar, "traceId").hex(),
        "span": identifier(exemplar, "spanId").hex(),
        "attributes": read.attributes(items(exemplar, "filteredAttributes")),
    }


_KINDS: Final = {
    "gauge": _Kind("gauge", _number),
    "sum": _Kind("sum", _number),
    "histogram": _Kind("histogram", _histogram),
    "exponential_histogram": _Kind("exponentialHistogram", _exponential),
    "summary": _Kind("summary", _summary),
}
