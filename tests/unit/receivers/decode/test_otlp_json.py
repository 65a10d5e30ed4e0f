"""OTLP/JSON bodies: the same items as protobuf gives, and what only JSON can do wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from agentrund.model.errors import Rejected
from agentrund.model.otlp import BadItem, Encoding, LogItem, Signal, SpanItem
from agentrund.receivers.decode import otlp
from support.otlp_build import any_value, key_values, logs, span, traces
from support.otlp_json import to_json

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.binary(max_size=8)
    | st.text(max_size=8)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)
ATTRIBUTES = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)


def items(signal: Signal, encoding: Encoding, body: bytes) -> list:
    list(otlp.check(signal, encoding, body))
    return [item for item in otlp.decode(signal, encoding, body) if item is not None]


def fields(item: Any) -> dict[str, Any]:
    """An item without its size; NaN equals itself only as text."""
    found = {
        name: getattr(item, name)
        for name in item.__slots__
        if name not in ("size", "resource", "events", "links")
    }
    for name in ("events", "links"):
        found[name] = [
            {slot: getattr(one, slot) for slot in getattr(one, "__slots__", ())}
            for one in getattr(item, name, [])
        ]
    found["resource"] = item.resource.attributes
    return json.loads(
        json.dumps(found, default=lambda value: [getattr(value, slot) for slot in value.__slots__])
    )


@given(ATTRIBUTES, ATTRIBUTES, st.booleans())
def test_spans_are_the_same_in_both_encodings(attributes, resource, failed):
    one = span(
        2, 1, attributes=attributes, error="boom" if failed else None, exception=("E", "x"), kind=3, flags=5
    )
    one.links.add(trace_id=b"\x22" * 16, span_id=b"\x01" * 8, attributes=key_values(attributes))
    body = traces(one, span(3), resource=resource)
    expected = [fields(item) for item in items(Signal.TRACES, Encoding.PROTOBUF, body)]
    assert [
        fields(item) for item in items(Signal.TRACES, Encoding.JSON, to_json(Signal.TRACES, body))
    ] == expected


@given(ATTRIBUTES, VALUES, st.sampled_from([b"", b"\x11" * 16, b"\x11" * 3, bytes(16)]))
def test_log_records_are_the_same_in_both_encodings(attributes, value, trace):
    record = LogRecord(
        time_unix_nano=7,
        observed_time_unix_nano=8,
        severity_number=9,
        severity_text="INFO",
        event_name="e",
        body=any_value(value),
        attributes=key_values(attributes),
        trace_id=trace,
        dropped_attributes_count=2,
    )
    body = logs(record, resource=attributes)
    expected = [fields(item) for item in items(Signal.LOGS, Encoding.PROTOBUF, body)]
    assert [
        fields(item) for item in items(Signal.LOGS, Encoding.JSON, to_json(Signal.LOGS, body))
    ] == expected


def body(item: Any = None, **more: Any) -> bytes:
    """A request of one span, as text, with what a sender might add."""
    whole = {"traceId": "Ab" * 16, "spanId": "cD" * 8, "name": "n", **more} if item is None else item
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [whole]}]}]}).encode()


def one(data: bytes) -> Any:
    (item,) = items(Signal.TRACES, Encoding.JSON, data)
    return item


def attribute(value: Any) -> Any:
    item = one(body(attributes=[{"key": "k", "value": value}]))
    assert isinstance(item, SpanItem), item
    return item.attributes["k"]


def test_ids_are_hex_of_any_case():
    item = one(body(parentSpanId="EF" * 8))
    assert (item.trace, item.span, item.parent) == ("ab" * 16, "cd" * 8, "ef" * 8)


@pytest.mark.parametrize(
    "absent", [{}, {"parentSpanId": ""}, {"parentSpanId": None}, {"parentSpanId": "00" * 8}]
)
def test_a_root_has_no_parent(absent):
    assert one(body(**absent)).parent is None


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"intValue": "5"}, 5),
        ({"intValue": 5}, 5),
        ({"intValue": 5.0}, 5),
        ({"intValue": str(-(2**63))}, -(2**63)),
        ({"doubleValue": 0}, 0.0),
        ({"doubleValue": "NaN"}, "NaN"),
        ({"doubleValue": "-Infinity"}, "-Infinity"),
        ({"doubleValue": "1.5"}, 1.5),
        ({"bytesValue": "_-8"}, "/+8="),
        ({"boolValue": False}, False),
        ({"stringValue": ""}, ""),
        ({"arrayValue": {}}, []),
        ({"kvlistValue": {"values": []}}, {}),
        ({"arrayValue": {"values": [{}, {"stringValue": "x"}]}}, [None, "x"]),
        ({}, None),
        (None, None),
        ({"somethingNew": 1}, None),
        ({"stringValue": None, "intValue": 3}, 3),
    ],
)
def test_values_as_clients_write_them(value, read):
    found = attribute(value)
    assert found == read
    assert type(found) is type(read)


@pytest.mark.parametrize(
    "wrong",
    [
        {"traceId": "zz"},
        {"traceId": 5},
        {"traceId": "00" * 16},
        {"spanId": "ab"},
        {"parentSpanId": "ab"},
        {"name": 5},
        {"startTimeUnixNano": "-1"},
        {"startTimeUnixNano": str(2**64)},
        {"startTimeUnixNano": "soon"},
        {"startTimeUnixNano": "9" * 5000},
        {"startTimeUnixNano": 1e400},
        {"kind": "SPAN_KIND_NONE"},
        {"kind": []},
        {"attributes": 5},
        {"attributes": [5]},
        {"attributes": [{"key": 5}]},
        {"attributes": [{"key": "k", "value": 5}]},
        {"attributes": [{"key": "k", "value": {"intValue": "x"}}]},
        {"attributes": [{"key": "k", "value": {"intValue": str(2**63)}}]},
        {"attributes": [{"key": "k", "value": {"intValue": True}}]},
        {"attributes": [{"key": "k", "value": {"boolValue": 1}}]},
        {"attributes": [{"key": "k", "value": {"stringValue": {}}}]},
        {"attributes": [{"key": "k", "value": {"bytesValue": "!"}}]},
        {"attributes": [{"key": "k", "value": {"doubleValue": []}}]},
        {"attributes": [{"key": "k", "value": {"arrayValue": 5}}]},
        {"status": 5},
        {"status": {"code": "STATUS_CODE_FINE"}},
        {"events": [{"attributes": [None]}]},
        {"links": [{"traceId": "xy"}]},
        {"droppedLinksCount": 2**32},
    ],
)
def test_a_bad_item_costs_itself_and_not_its_batch(wrong):
    good = json.loads(body())["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    data = {"resourceSpans": [{"scopeSpans": [{"spans": [{**good, **wrong}, good, 7]}]}]}
    found = items(Signal.TRACES, Encoding.JSON, json.dumps(data).encode())
    assert [type(item) for item in found] == [BadItem, SpanItem, BadItem]
    assert [item.i for item in found] == [0, 1, 2]


def test_names_of_enums_are_read_too():
    item = one(body(kind="SPAN_KIND_CLIENT", status={"code": "STATUS_CODE_ERROR"}))
    assert (item.kind, item.failed) == (3, True)
    assert one(body(kind="3")).kind == 3


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"5", b"null", b'{"resourceSpans": 5}', b"\xff\xfe", b"[" * 100_000]
)
def test_a_body_that_is_no_request_is_rejected(data):
    for read in (otlp.check, otlp.decode):
        with pytest.raises(Rejected) as caught:
            list(read(Signal.TRACES, Encoding.JSON, data))
        assert caught.value.code == "bad_otlp"


@pytest.mark.parametrize(
    "data", [b"{}", b" {\r\n} ", b'{"resourceSpans": []}', b'{"resourceSpans": null}', b'{"x": 1}']
)
def test_an_empty_request_is_one(data):
    assert items(Signal.TRACES, Encoding.JSON, data) == []


def test_what_is_odd_in_the_text_is_repaired_and_said():
    data = body(attributes=[{"key": "k", "value": {"stringValue": "HERE"}}])
    broken = one(data.replace(b"HERE", b"a\xffb\\ud800"))
    assert broken.attributes == {"k": "a\ufffdb\ufffd"}
    assert broken.repairs == ["in its request: text that is no UTF-8, replaced"]
    pretty = one(b"\xef\xbb\xbf" + json.dumps(json.loads(data), indent=4).replace("\n", "\r\n").encode())
    assert pretty.attributes == {"k": "HERE"}


@pytest.mark.parametrize("levels", [90, 150, 5_000, 100_000])
def test_what_is_nested_too_deeply_is_kept_as_text(levels):
    data = body(attributes=[{"key": "k", "value": {"stringValue": "HERE"}}])
    deep = b'{"arrayValue":{"values":[' * levels + b'{"intValue":7}' + b"]}}" * levels
    item = one(data.replace(b'{"stringValue": "HERE"}', deep))
    assert isinstance(item, SpanItem)
    text = json.dumps(item.attributes["k"])
    assert "7" in text
    depth = len(text) - len(text.lstrip("["))
    assert depth == levels or (depth <= 100 and item.repairs)


def test_logs_without_ids_are_normal():
    data = {
        "resourceLogs": [
            {"scopeLogs": [{"logRecords": [{"body": {"stringValue": "x"}, "observedTimeUnixNano": 9}]}]}
        ]
    }
    (item,) = items(Signal.LOGS, Encoding.JSON, json.dumps(data).encode())
    assert isinstance(item, LogItem)
    assert (item.trace, item.span, item.time_ns, item.body, item.repairs) == (None, None, 9, "x", [])
