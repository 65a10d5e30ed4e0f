"""The stream protocol's examples: valid against the schema, or refused with the code they name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from agentrund.formats import metric_lines, trace_jsonl
from agentrund.formats.derive import derive
from agentrund.model.errors import Rejected
from agentrund.model.otlp import Encoding, Point, Signal
from agentrund.receivers.decode import otlp
from agentrund.receivers.decode.jsonl import decode
from agentrund.receivers.decode.mapping import map_item
from support.otlp_build import T0, every_kind, metrics
from support.otlp_execute import local_iso
from support.run_folder import CRASHED, ENDED, RUN, RUNNING, records

PROTO = Path(__file__).parents[2] / "proto"
SCHEMA = json.loads((PROTO / "stream" / "v1.schema.json").read_text())

SINK_CODES = {"unknown_op"}
"""Refused by whoever takes the frame, not while a line is read."""


def cases():
    for path in sorted((PROTO / "vectors" / "stream").glob("*.json")):
        vectors = json.loads(path.read_text())
        for case in vectors["cases"]:
            yield pytest.param(vectors["direction"], case, id=f"{path.stem}: {case['name']}")


def validator(direction):
    return Draft202012Validator({**SCHEMA, "anyOf": [{"$ref": f"#/$defs/{direction}"}]})


def line_of(case):
    return (case["line"] if "line" in case else json.dumps(case["frame"])).encode()


@pytest.mark.parametrize("path", sorted(PROTO.rglob("*.schema.json")), ids=lambda p: p.name)
def test_schemas_are_schemas(path):
    Draft202012Validator.check_schema(json.loads(path.read_text()))


@pytest.mark.parametrize(("direction", "case"), list(cases()))
def test_schema_accepts_the_good_and_refuses_the_bad(direction, case):
    if "line" in case:
        return
    assert validator(direction).is_valid(case["frame"]) == ("error" not in case)


@pytest.mark.parametrize(("direction", "case"), list(cases()))
def test_door_accepts_the_good_and_refuses_the_bad_with_their_code(direction, case):
    if direction == "collector" or case.get("error") in SINK_CODES:
        return
    if "error" not in case:
        decode(line_of(case))
        return
    with pytest.raises(Rejected) as caught:
        decode(line_of(case))
    assert caught.value.code == case["error"]


def test_every_error_code_of_the_schema_is_a_vector():
    codes = set(SCHEMA["$defs"]["collector_error"]["properties"]["code"]["enum"])
    collector = json.loads((PROTO / "vectors" / "stream" / "collector.json").read_text())
    assert {c["frame"]["code"] for c in collector["cases"] if c["frame"]["op"] == "error"} == codes


# -- the run folder -------------------------------------------------------------------------------


def schema(name):
    return Draft202012Validator(json.loads((PROTO / "run-folder" / f"{name}.schema.json").read_text()))


@pytest.mark.parametrize("facts", [CRASHED, ENDED, RUNNING], ids=["crashed", "ended", "running"])
def test_what_the_writers_write_is_valid(facts):
    found = records(RUN, facts)
    for record in found:
        schema("record").validate(json.loads(trace_jsonl.encode(record)))
    derived = derive(found)
    schema("analytics").validate(json.loads(derived.analytics))
    schema("meta").validate(json.loads(derived.meta))
    schema("index-row").validate(derived.row)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("record", "seq", 0),
        ("record", "payload", []),
        ("record", "ts", "now"),
        ("index-row", "status", "good"),
        ("index-row", "cost_usd", "0"),
        ("index-row", "run_id", "x"),
    ],
)
def test_a_wrong_value_is_not_valid(name, key, value):
    [record, *_] = records(RUN, CRASHED)
    good = json.loads(trace_jsonl.encode(record)) if name == "record" else derive([record]).row
    assert schema(name).is_valid(good)
    assert not schema(name).is_valid(good | {key: value})


def test_lines_of_metrics_are_valid():
    items = otlp.decode(Signal.METRICS, Encoding.PROTOBUF, metrics(*every_kind()))
    points = [Point(7, "prog", T0, map_item(item)) for item in items if item is not None]
    lines = [json.loads(metric_lines.encode(p, RUN, local_iso, resource=True)) for p in points]
    lines.append(json.loads(metric_lines.encode_full(RUN, 3)))
    of_metric = schema("metric")
    for line in lines:
        of_metric.validate(line)
        assert set(line) <= set(of_metric.schema["properties"])
        assert not of_metric.is_valid({key: value for key, value in line.items() if key != "kind"})
