"""Lines of metrics.jsonl: strict JSON, whole, and known again by their end."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.formats import metric_lines
from agentrund.model.otlp import BadItem, Encoding, MappedMetric, Point, Resource, Signal
from agentrund.receivers.decode import mapping, otlp
from support.metric_points import metric_line, metric_point
from support.otlp_build import T0, every_kind, metrics
from support.otlp_execute import local_iso

RUN = "20260830_142233_a1b2"
ISO = "2026-09-21T14:13:20.000+00:00"


def lines(body: bytes, **fields) -> list[dict]:
    found = (i for i in otlp.decode(Signal.METRICS, Encoding.PROTOBUF, body) if i is not None)
    points = (Point(7, "prog", T0 + 5, mapping.map_item(item)) for item in found)
    return [json.loads(metric_lines.encode(p, RUN, local_iso, **fields)) for p in points]


def test_a_counter():
    assert list(json.loads(metric_line(RUN, model="m", rq=12, i=3)).items()) == [
        ("run_id", RUN),
        ("ts", T0),
        ("iso", ISO),
        ("name", "calls"),
        ("kind", "sum"),
        ("temporality", "delta"),
        ("monotonic", True),
        ("value", 1),
        ("attributes", {"model": "m"}),
        ("service", "demo"),
        ("src", {"k": "otlp", "id": "prog", "rq": 12, "i": 3}),
    ]


def test_histograms_are_whole():
    found = {line["name"]: line for line in lines(metrics(*every_kind(), scope="lib"))[::-1]}
    h = found["h"]
    assert (h["start"], h["unit"], h["temporality"], h["scope"]) == (ISO, "s", "cumulative", "lib")
    assert (h["count"], h["sum"], h["bounds"], h["bucket_counts"]) == (3, 4.5, [1.0, 2.0], [1, 1, 1])
    e = found["e"]
    assert (e["scale"], e["positive"]["bucket_counts"]) == (-3, [1, 0, 2])
    assert found["s"]["quantiles"][1] == {"quantile": 1.0, "value": 2.0}
    assert (found["g"]["description"], found["g"]["value"]) == ("a gauge", 1.5)


def test_a_point_without_a_time_has_that_of_its_arrival():
    point = metric_point()
    point.metric.item.time_ns = 0
    line = json.loads(metric_lines.encode(Point(1, "p", T0 + 5.0006, point.metric), RUN, local_iso))
    assert (line["ts"], line["iso"]) == (T0 + 5.001, "2026-09-21T14:13:25.001+00:00")


def test_the_resource_where_it_is_asked_for():
    line = json.loads(metric_lines.encode(metric_point(), None, local_iso, resource=True))
    assert line["resource"] == {"service.name": "demo", "service.instance.id": "prog"}
    assert line["run_id"] is None


def test_a_metric_that_could_not_be_read():
    item = BadItem(2, Resource({}), Signal.METRICS, "why", 9)
    point = Point(7, "prog", T0, MappedMetric(2, item.resource, item))
    encoded = metric_lines.encode(point, RUN, local_iso)
    line = json.loads(encoded)
    assert (line["kind"], line["error"], line["bytes"], line["ts"]) == ("unreadable", "why", 9, T0)
    assert metric_lines.source_of(encoded) == (7, 2)
    assert metric_lines.problem(encoded, RUN) is None


@pytest.mark.parametrize("count", [0, 1, 10**15 - 1])
def test_a_full_file_ends_in_a_line_of_one_length(count):
    line = metric_lines.encode_full(RUN, count)
    assert len(line) == len(metric_lines.encode_full(RUN, 0))
    assert metric_lines.left_out(line) == count
    assert metric_lines.problem(line, RUN) is None
    assert metric_lines.source_of(line) is None


JSON = st.recursive(
    st.none()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(
    st.integers(0, 2**53),
    st.integers(0, 2**31),
    st.dictionaries(st.sampled_from(["rq", "i", "src", "kind", "run_id", "x"]) | st.text(), JSON, max_size=4),
)
def test_whatever_a_sender_says_a_line_is_one_and_names_its_origin(rq, i, attributes):
    point = metric_point(i, rq=rq)
    point.metric.item.attributes = attributes
    line = metric_lines.encode(point, RUN, local_iso)
    assert line.count(b"\n") == 1
    assert json.loads(line)["attributes"] == attributes
    assert metric_lines.source_of(line) == (rq, i)
    assert metric_lines.source_of(line[:-1]) is None
    assert metric_lines.left_out(line) is None
    assert metric_lines.problem(line, RUN) is None
    assert metric_lines.problem(line, "other") is not None


@given(st.binary(max_size=60))
def test_anything_else_is_no_line(data):
    assert metric_lines.problem(data + b"\n", RUN) is not None
    assert metric_lines.problem(data, RUN) is not None
    assert metric_lines.left_out(data + b"\n") is None
