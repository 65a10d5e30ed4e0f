"""The stream protocol's examples: valid against the schema, or refused with the code they name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from agentrund.model.errors import Rejected
from agentrund.receivers.decode.jsonl import decode

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
