from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from agentrund.model.errors import Rejected
from agentrund.model.otlp import BadItem, Encoding, LogItem, Signal, SpanItem
from agentrund.receivers.decode import otlp, otlp_protobuf
from support.otlp_build import (
    T0,
    TRACE,
    any_value,
    every_kind,
    field,
    hex_id,
    key_values,
    logs,
    metrics,
    nested,
    span,
    traces,
)


def decode(signal: Signal, body: bytes) -> list:
    return [i for i in otlp.decode(signal, Encoding.PROTOBUF, body) if i is not None]


def test_a_span_is_read_whole():
    sent = span(
        2,
        1,
        name="chat",
        seconds=0.5,
        attributes={"a": 1},
        error="boom",
        exception=("E", "boom"),
        kind=3,
        flags=0x300,
        trace_state="k=v",
        dropped_attributes_count=4,
    )
    sent.links.add(trace_id=b"\x22" * 16, span_id=b"\x01" * 8, attributes=key_values({"l": "1"}))
    (item,) = decode(Signal.TRACES, traces(sent, resource={"service.name": "s"}))
    assert isinstance(item, SpanItem)
    assert (item.trace, item.span, item.parent) == (TRACE, hex_id(2), hex_id(1))
    assert (item.name, item.kind, item.flags, item.state) == ("chat", 3, 0x300, "k=v")
    assert (item.start, item.end) == (T0, T0 + 0.5)
    assert (item.failed, item.status_code, item.status_message) == (True, 2, "boom")
    assert item.attributes == {"a": 1}
    assert item.resource.attributes == {"service.name": "s"}
    assert item.scope.name == "lib"
    assert [(e.name, e.attributes) for e in item.events] == [
        ("exception", {"exception.type": "E", "exception.message": "boom"})
    ]
    assert [(n.trace, n.span, n.attributes) for n in item.links] == [("22" * 16, "01" * 8, {"l": "1"})]
    assert item.dropped == {"attributes": 4}
    assert item.repairs == []


def test_a_log_record_is_read_whole():
    sent = LogRecord(
        time_unix_nano=round(T0 * 1e9),
        severity_number=17,
        severity_text="ERROR",
        body=any_value({"k": [1, b"x"]}),
        attributes=key_values({"a": None}),
        trace_id=bytes.fromhex(TRACE),
        span_id=bytes(7) + b"\x01",
        event_name="an.event",
    )
    (item,) = decode(Signal.LOGS, logs(sent))
    assert isinstance(item, LogItem)
    assert (item.trace, item.span, item.event_name) == (TRACE, hex_id(1), "an.event")
    assert (item.time_ns, item.severity, item.severity_text) == (round(T0 * 1e9), 17, "ERROR")
    assert (item.body, item.attributes) == ({"k": [1, "eA=="]}, {"a": None})


def test_a_log_without_time_has_the_time_it_was_observed_and_needs_no_ids():
    (item,) = decode(Signal.LOGS, logs(LogRecord(observed_time_unix_nano=5, trace_id=bytes(16))))
    assert (item.time_ns, item.trace, item.span, item.body, item.repairs) == (5, None, None, None, [])


def test_a_log_with_bad_ids_keeps_everything_else():
    (item,) = decode(Signal.LOGS, logs(LogRecord(trace_id=b"short", span_id=b"s")))
    assert (item.trace, item.span, len(item.repairs)) == (None, None, 2)


def test_every_data_point_of_every_resource_is_an_item():
    request = ExportMetricsServiceRequest()
    for name in ("one", "two"):
        of_resource = request.resource_metrics.add()
        of_resource.resource.attributes.extend(key_values({"service.name": name}))
        of_scope = of_resource.scope_metrics.add()
        of_scope.metrics.add(name="m").gauge.data_points.add(as_int=1)
        of_scope.metrics[0].gauge.data_points.add(as_int=2)
        of_scope.metrics.add(name="n")
    items = decode(Signal.METRICS, request.SerializeToString())
    assert [(i.i, i.resource.attributes["service.name"], i.metric.name, i.values) for i in items] == [
        (0, "one", "m", {"value": 1}),
        (1, "one", "m", {"value": 2}),
        (2, "one", "n", None),
        (3, "two", "m", {"value": 1}),
        (4, "two", "m", {"value": 2}),
        (5, "two", "n", None),
    ]


def test_empty_requests_are_requests():
    envelope = ExportTraceServiceRequest()
    envelope.resource_spans.add().scope_spans.add()
    for body in (b"", envelope.SerializeToString()):
        for signal in Signal:
            assert decode(signal, body) == []


def test_one_string_of_invalid_utf8_costs_nothing():
    body = traces(*(span(n, name=f"span-{n:02}") for n in range(1, 11)))
    items = decode(Signal.TRACES, body.replace(b"span-07", b"span-\xff7"))
    assert [i.i for i in items] == list(range(10))
    assert [i.name for i in items][5:8] == ["span-06", "span-\ufffd7", "span-08"]
    assert [bool(i.repairs) for i in items] == [n == 6 for n in range(10)]


def test_invalid_utf8_in_a_resource_or_scope_is_repaired_for_all_its_items():
    body = traces(span(1), span(2), resource={"service.name": "BAD"}, scope="BAD")
    items = decode(Signal.TRACES, body.replace(b"BAD", b"B\xffD"))
    assert [(i.resource.attributes["service.name"], i.scope.name) for i in items] == [
        ("B\ufffdD", "B\ufffdD")
    ] * 2
    assert [i.repairs for i in items] == [
        [
            "in its scope: strings of invalid UTF-8, repaired: 1",
            "in its resource: strings of invalid UTF-8, repaired: 1",
        ]
    ] * 2


def test_a_resource_or_scope_that_is_no_message_leaves_a_note():
    body = field(
        1, field(1, b"\x0a\x05x") + field(2, field(1, b"\xff") + field(2, span(1).SerializeToString()))
    )
    (item,) = decode(Signal.TRACES, body)
    assert (item.resource.attributes, item.scope.name) == ({}, "")
    assert [note.partition(":")[0] for note in item.repairs] == [
        "its scope cannot be read",
        "its resource cannot be read",
    ]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"trace_id": b"\x01" * 15}, "trace id has 15 bytes"),
        ({"trace_id": bytes(16)}, "trace id is missing"),
        ({"trace_id": b""}, "trace id is missing"),
        ({"span_id": bytes(8)}, "span id is missing"),
        ({"span_id": b"\x01" * 16}, "span id has 16 bytes"),
        ({"parent_span_id": b"\x01" * 7}, "parent span id has 7 bytes"),
    ],
)
def test_a_bad_id_costs_its_span_only(change, why):
    bad = span(2)
    for name, value in change.items():
        setattr(bad, name, value)
    items = decode(Signal.TRACES, traces(span(1), bad, span(3)))
    assert [type(i) for i in items] == [SpanItem, BadItem, SpanItem]
    assert [i.i for i in items] == [0, 1, 2]
    assert items[1].why == why


def test_a_parent_of_zeros_is_none():
    sent = span(1)
    sent.parent_span_id = bytes(8)
    assert decode(Signal.TRACES, traces(sent))[0].parent is None


def test_a_span_that_is_no_message_costs_itself_only():
    good = traces(span(1))
    broken = b"\x0a\x05\x12\x03\x12\x01\xff"
    items = decode(Signal.TRACES, good + broken + traces(span(3)))
    assert [type(i) for i in items] == [SpanItem, BadItem, SpanItem]


@pytest.mark.parametrize("levels", [60, 100_000])
def test_too_deep_a_value_is_kept_as_text(levels):
    deep = span(2).SerializeToString() + field(9, field(1, b"deep") + field(2, nested("[", levels)))
    body = b"".join(field(1, field(2, field(2, s))) for s in (span(1).SerializeToString(), deep))
    items = decode(Signal.TRACES, body + traces(span(3)))
    assert [i.span for i in items] == [hex_id(1), hex_id(2), hex_id(3)]
    assert str(items[1].attributes["deep"]).count("[") == levels
    assert items[1].repairs == ["values nested too deeply for protobuf, kept as JSON text: 1"]


def test_a_repeated_attribute_key_leaves_a_note():
    sent = span(1, exception=("T", "m"))
    sent.attributes.extend([*key_values({"k": "first"}), *key_values({"k": "last"})])
    sent.events[0].attributes.extend(key_values({"exception.type": "U"}))
    (item,) = decode(Signal.TRACES, traces(sent))
    assert item.attributes == {"k": "last"}
    assert item.repairs == ["repeated keys, the last value kept: 2"]


@pytest.mark.parametrize(
    "body", [b"\xff\xff\xff", b"{}", b"not protobuf at all", b"\x0a\xff\x01x", b"\x08\x01"]
)
@pytest.mark.parametrize("signal", list(Signal))
def test_a_body_that_is_no_request_is_rejected(signal, body):
    for read in (otlp.check, otlp.decode):
        with pytest.raises(Rejected) as caught:
            list(read(signal, Encoding.PROTOBUF, body))
        assert caught.value.code == "bad_otlp"


def test_scope_and_resource_may_come_after_what_they_describe():
    request = ExportTraceServiceRequest.FromString(traces(span(1), resource={"r": "1"}, scope="s"))
    of_resource = request.resource_spans[0]
    of_scope = of_resource.scope_spans[0]

    scope = field(2, of_scope.spans[0].SerializeToString()) + field(1, of_scope.scope.SerializeToString())
    body = field(1, field(2, scope) + field(1, of_resource.resource.SerializeToString()))
    (item,) = decode(Signal.TRACES, body)
    assert (item.resource.attributes, item.scope.name) == ({"r": "1"}, "s")


def test_a_large_item_is_read_with_pauses():
    big = span(1, attributes={f"key-{n}": "v" * 40 for n in range(2000)} | {"list": list(range(3000))})
    body = traces(big)
    assert len(body) > otlp_protobuf.LARGE
    out = list(otlp.decode(Signal.TRACES, Encoding.PROTOBUF, body))
    assert out.count(None) >= 2000 // 256 + 3000 // 256
    (item,) = [i for i in out if i is not None]
    assert len(item.attributes) == 2001
    assert item.attributes["list"] == list(range(3000))


def test_a_request_of_many_items_is_taken_apart_with_pauses():
    body = traces(*(span(n) for n in range(1, 1001)))
    out = list(otlp.decode(Signal.TRACES, Encoding.PROTOBUF, body))
    assert out.index(next(i for i in out if i is not None)) >= 3
    first = out.index(None, 4)
    assert all(any(i is None for i in out[at : at + 33]) for at in range(first, len(out) - 33))
    assert 3 <= len(list(otlp.check(Signal.TRACES, Encoding.PROTOBUF, body))) < 20


SAMPLES = {
    Signal.TRACES: traces(
        span(1, attributes={"a": [1, {"b": b"x"}], "t": "ü"}, error="e", exception=("T", "m")), span(2, 1)
    ),
    Signal.LOGS: logs(
        LogRecord(body=any_value({"k": ["v"]}), trace_id=b"\x01" * 16, attributes=key_values({"a": 1.5}))
    ),
    Signal.METRICS: metrics(*every_kind()),
}


@settings(max_examples=300)
@given(st.sampled_from(list(Signal)), st.data())
def test_mutated_bytes_are_items_bad_items_or_rejected(signal, data):
    body = bytearray(SAMPLES[signal])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        match data.draw(st.sampled_from("xid")):
            case "x":
                body[at] = data.draw(st.integers(0, 255))
            case "i":
                body[at:at] = data.draw(st.binary(max_size=4))
            case "d":
                del body[at : at + data.draw(st.integers(1, 5))]
        if not body:
            break
    try:
        items = decode(signal, bytes(body))
    except Rejected:
        return
    assert [i.i for i in items] == list(range(len(items)))


@given(st.sampled_from(list(Signal)), st.binary(max_size=300))
def test_random_bytes_are_read_or_rejected(signal, body):
    with suppress(Rejected):
        decode(signal, body)
