"""Lines of metrics.jsonl, as the collector writes them."""

from __future__ import annotations

from dataclasses import replace

from agentrund.formats import metric_lines
from agentrund.model.otlp import Metric, Point
from support.otlp_build import T0, mapped_metric
from support.otlp_execute import local_iso


def metric_point(i: int = 0, *, rq: int = 7, source: str = "prog", **fields) -> Point:
    return Point(rq, source, T0, mapped_metric(i, **fields))


def metric_line(run_id: str | None, i: int = 0, **fields) -> bytes:
    return metric_lines.encode(metric_point(i, **fields), run_id, local_iso)


def histogram_line(run_id: str | None) -> bytes:
    point = metric_point(1, name="durations")
    metric = Metric("durations", "", "s", "histogram", "cumulative", None, {})
    item = replace(point.metric.item, metric=metric, values=HISTOGRAM)
    return metric_lines.encode(replace(point, metric=replace(point.metric, item=item)), run_id, local_iso)


HISTOGRAM = {"count": 2, "sum": 3.5, "min": 1.0, "max": 2.5, "bounds": [2.0], "bucket_counts": [1, 1]}
