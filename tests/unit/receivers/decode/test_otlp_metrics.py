"""Metrics: every data point whole, the same from protobuf and from JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as MetricMessage

from agentrund.model.otlp import BadItem, Encoding, MetricItem, Signal
from agentrund.receivers.decode import otlp
from support.otlp_build import T0, counter, every_kind, field, key_values, metrics
from support.otlp_captures import load
from support.otlp_json import to_json


def decode(encoding: Encoding, body: bytes) -> list[Any]:
    return [i for i in otlp.decode(Signal.METRICS, encoding, body) if i is not None]


def both(body: bytes) -> list[Any]:
    """The items of a protobuf body, which are those of the same body as JSON but for their sizes."""
    items = decode(Encoding.PROTOBUF, body)
    of_json = decode(Encoding.JSON, to_json(Signal.METRICS, body))
    assert all(item.size > 0 for item in (*items, *of_json))
    for one, other in zip(items, of_json, strict=True):
        assert other.resource.attributes == one.resource.attributes
        other.size, other.resource = one.size, one.resource
        assert one == other
    return items


def test_every_kind_is_read_whole():
    items = both(metrics(*every_kind(), resource={"service.name": "s"}))
    assert [i.i for i in items] == list(range(len(items)))
    assert {i.resource.attributes["service.name"] for i in items} == {"s"}
    assert {i.scope.name for i in items} == {"lib"}
    found = {}
    for item in items:
        found.setdefault(item.metric.name, []).append(item)
    assert [i.values for i in found["c"]] == [{"value": 2**53 + 1}, {"value": -1}]
    metric = found["c"][0].metric
    assert (metric.kind, metric.temporality, metric.monotonic, metric.unit) == ("sum", "delta", True, "1")
    assert [i.values for i in found["g"]] == [
        {"value": 1.5},
        {"value": "NaN"},
        {"value": None, "no_value": True},
    ]
    metric = found["g"][0].metric
    assert (metric.kind, metric.temporality, metric.description) == ("gauge", None, "a gauge")
    assert metric.metadata == {"prometheus.type": "x"}
    full, empty = found["h"]
    assert (full.metric.temporality, full.start_ns, full.time_ns) == (
        "cumulative",
        round(T0 * 1e9),
        round((T0 + 1) * 1e9),
    )
    assert full.attributes == {"model": "m", "n": 1}
    assert full.values == {
        "count": 3,
        "sum": 4.5,
        "min": 0.5,
        "max": 3.0,
        "bounds": [1.0, 2.0],
        "bucket_counts": [1, 1, 1],
        "exemplars": [{"ts": T0, "value": 3, "trace": "11" * 16, "span": "01" * 8, "attributes": {"a": "b"}}],
    }
    assert empty.values == {"count": 0, "bounds": [], "bucket_counts": []}
    assert found["e"][0].values == {
        "count": 6,
        "sum": -2.0,
        "min": -9.0,
        "max": 7.0,
        "scale": -3,
        "zero_count": 1,
        "zero_threshold": 0.25,
        "positive": {"offset": -2, "bucket_counts": [1, 0, 2]},
        "negative": {"offset": 3, "bucket_counts": [2]},
    }
    assert found["s"][0].values == {
        "count": 2,
        "sum": 3.0,
        "quantiles": [{"quantile": 0.5, "value": 1.0}, {"quantile": 1.0, "value": 2.0}],
    }


def test_a_metric_without_points_has_no_values():
    (item,) = both(metrics(MetricMessage(name="m")))
    assert (item.metric.kind, item.values) == ("", None)
    (item,) = both(metrics(MetricMessage(name="m", gauge={})))
    assert (item.metric.kind, item.values) == ("gauge", None)


RECORDED = [
    "claude-code-2.1.332-subagents",
    "codex-0.171.0-full-grpc",
    "gemini-cli-0.61.0-full-grpc",
    "google-adk-2.13.0",
    "logfire-5.4.0",
    "openllmetry-openai-0.40.14",
    "otel-sdk-node-0.223.0-grpc",
    "otel-sdk-python-1.45.2-grpc",
    "strands-agents-1.62.0",
]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_metrics_are_the_same_in_both_encodings(name):
    for request in load(name).requests:
        if request.signal is Signal.METRICS:
            assert both(request.body)


@given(
    st.lists(
        st.tuples(st.text(max_size=5), st.integers(-(2**63), 2**63 - 1) | st.floats(), st.integers(0, 2**63)),
        max_size=5,
    )
)
def test_any_number_comes_as_it_was_sent(found):
    messages = []
    for name, value, at in found:
        message = MetricMessage(name=name)
        point = message.gauge.data_points.add(time_unix_nano=at, attributes=key_values({"k": value}))
        if isinstance(value, int):
            point.as_int = value
        else:
            point.as_double = value
        messages.append(message)
    for item, (name, _, at) in zip(both(metrics(*messages)), found, strict=True):
        assert (item.metric.name, item.time_ns) == (name, at)
        assert item.values["value"] == item.attributes["k"]


def test_a_metric_that_cannot_be_read_costs_only_itself():
    body = metrics(counter("a"), counter("b"))
    broken = field(1, field(2, field(2, field(7, b"\xff")) + field(2, counter("c").SerializeToString())))
    items = decode(Encoding.PROTOBUF, body + broken)
    assert [(i.i, type(i)) for i in items] == [
        (0, MetricItem),
        (1, MetricItem),
        (2, BadItem),
        (3, MetricItem),
    ]
    assert items[2].signal is Signal.METRICS
    assert [why for why in otlp.check(Signal.METRICS, Encoding.PROTOBUF, body + broken) if why]


@pytest.mark.parametrize(
    "bad",
    [
        "no object",
        7,
        {"asInt": "x"},
        {"asDouble": {}},
        {"attributes": {}},
        {"exemplars": [1]},
        {"timeUnixNano": -1},
    ],
)
def test_a_point_that_cannot_be_read_costs_only_itself(bad):
    points = [{"asInt": "1"}, bad, {"asInt": 3}]
    request = {
        "resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "m", "gauge": {"dataPoints": points}}]}]}]
    }
    body = json.dumps(request).encode()
    first, second, third = decode(Encoding.JSON, body)
    assert (first.values, third.values, third.i) == ({"value": 1}, {"value": 3}, 2)
    assert (type(second), second.i, second.signal) == (BadItem, 1, Signal.METRICS)
    assert len([why for why in otlp.check(Signal.METRICS, Encoding.JSON, body) if why]) == 1


@pytest.mark.parametrize(
    "bad",
    [
        1,
        None,
        {"name": 1},
        {"sum": 3},
        {"sum": {"dataPoints": {}}},
        {"sum": {"aggregationTemporality": []}},
        {"histogram": {"dataPoints": [{"bucketCounts": [None]}]}},
        {"histogram": {"dataPoints": [{"bucketCounts": ["x"]}]}},
        {"histogram": {"dataPoints": [{"explicitBounds": [{}]}]}},
        {"exponentialHistogram": {"dataPoints": [{"positive": 3}]}},
        {"summary": {"dataPoints": [{"quantileValues": [[]]}]}},
    ],
)
def test_json_of_no_metric_is_one_bad_item(bad):
    request = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [bad]}]}]}
    (item,) = decode(Encoding.JSON, json.dumps(request).encode())
    assert isinstance(item, BadItem)


def test_many_points_of_one_metric_are_read_in_steps():
    body = metrics(counter("m", *range(1000)))
    for encoding, data in ((Encoding.PROTOBUF, body), (Encoding.JSON, to_json(Signal.METRICS, body))):
        out = list(otlp.decode(Signal.METRICS, encoding, data))
        first = out.index(next(i for i in out if i is not None))
        assert all(any(i is None for i in out[at : at + 34]) for at in range(first, len(out) - 34))
