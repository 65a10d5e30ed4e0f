"""What has come over OTLP, by client: counted, bounded, and nothing of it decided."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from agentrund.model.otlp import BadItem, Encoding, Resource, Signal
from agentrund.receivers.decode import mapping, otlp
from agentrund.receivers.wire import CLIENTS, NAMES, OTHERS, Wire
from support.otlp_build import T0, any_value, counter, key_values, logs, metrics, span, traces
from support.otlp_captures import load

CHAT = {"gen_ai.operation.name": "chat"}


def note(wire: Wire, signal: Signal, body: bytes, at: float = T0 + 5) -> Wire:
    for item in otlp.decode(signal, Encoding.PROTOBUF, body):
        if item is not None:
            wire.note(item, mapping.map_item(item), at)
    return wire


def only(wire: Wire) -> dict[str, Any]:
    (client,) = json.loads(json.dumps(wire.as_json()))["clients"]
    return client


def test_what_no_rule_reads_is_counted_by_client():
    wire = Wire("now")
    assert not wire.changed
    attributes = {**CHAT, "gen_ai.request.model": "m", "session.id": "s", "vendor.thing": 1, "x.0.y.12": 2}
    note(wire, Signal.TRACES, traces(span(1, attributes=attributes), span(2, attributes=attributes),
                                     resource={"service.name": "svc"}, scope="lib"))  # fmt: skip
    assert wire.changed
    assert only(wire) == {
        "service": "svc",
        "scope": "lib",
        "items": {"spans": 2},
        "unmapped": {"vendor.thing": 2, "x.<n>.y.<n>": 2},
        "lost": {},
        "lag_s": 4.0,
    }


def test_clients_are_told_apart_by_service_and_scope():
    wire = Wire("now")
    for service, scope in (("a", "x"), ("a", "y"), ("b", "x")):
        note(wire, Signal.LOGS, logs(LogRecord(), resource={"service.name": service}, scope=scope))
    note(wire, Signal.METRICS, metrics(counter()))
    found = [(c["service"], c["scope"], c["items"]) for c in wire.as_json()["clients"]]
    assert found == [
        ("a", "x", {"logs": 1}),
        ("a", "y", {"logs": 1}),
        ("b", "x", {"logs": 1}),
        ("", "lib", {"points": 1}),
    ]


def test_spans_of_no_convention_and_items_that_become_nothing_are_counted():
    wire = note(Wire("now"), Signal.TRACES, traces(span(1), span(2, attributes={"mcp.method.name": "x"})))
    assert only(wire)["items"] == {"spans": 2, "no_convention": 1, "unused": 1}


def test_what_a_sender_has_lost_is_counted():
    lossy = span(
        1, attributes=CHAT, dropped_attributes_count=3, dropped_events_count=1, dropped_links_count=2
    )
    wire = note(Wire("now"), Signal.TRACES, traces(lossy, lossy))
    note(wire, Signal.LOGS, logs(LogRecord(dropped_attributes_count=4)))
    assert only(wire)["lost"] == {"attributes": 10, "events": 2, "links": 4}


def test_items_that_cannot_be_read_are_counted():
    wire = Wire("now")
    bad = BadItem(0, Resource({"service.name": "s"}), Signal.METRICS, "why", 9)
    wire.note(bad, mapping.map_item(bad), T0)
    assert (only(wire)["service"], only(wire)["items"]) == ("s", {"bad": 1})


def test_the_least_lag_shows_a_clock_that_is_ahead():
    wire = Wire("now")
    for at, time in ((T0, T0 - 3), (T0, T0 + 7), (T0, T0 - 1)):
        note(wire, Signal.LOGS, logs(LogRecord(time_unix_nano=round(time * 1e9))), at)
    note(wire, Signal.LOGS, logs(LogRecord()))
    assert only(wire)["lag_s"] == -7.0


def test_rejected_requests_and_wrong_ports():
    wire = Wire("since")
    for client in ("OTel/1", "", "OTel/1"):
        wire.note_rejected(client)
    wire.note_grpc_on_http()
    told = wire.as_json()
    assert (told["since"], told["grpc_to_http"]) == ("since", 1)
    assert told["rejected"] == {"OTel/1": 2, "(nameless)": 1}


@pytest.mark.parametrize(
    ("name", "unmapped", "read"),
    [
        ("openllmetry-langchain-0.62.4", "gen_ai.provider.name", "gen_ai.usage.input_tokens"),
        ("claude-code-2.1.332-full-grpc", "terminal.type", "session.id"),
        ("openinference-langchain-0.1.80", "llm.provider", "openinference.span.kind"),
    ],
)
def test_recorded_programs(name, unmapped, read):
    wire = Wire("now")
    for request in load(name).requests:
        note(wire, request.signal, request.body)
    names = {key for client in wire.as_json()["clients"] for key in client["unmapped"]}
    assert unmapped in names
    assert read not in names


def test_of_a_record_told_in_steps_the_steps_count():
    wire = Wire("now")
    for request in load("codex-0.171.0-full-grpc").requests:
        note(wire, request.signal, request.body)
    items = {
        key: sum(c["items"].get(key, 0) for c in wire.as_json()["clients"]) for key in ("logs", "unused")
    }
    assert items["logs"] == 28
    assert items["unused"] > 500


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 500)), max_size=30), st.text(), st.text())
def test_however_many_there_are_a_bounded_number_is_held(found, service, key):
    wire = Wire("now")
    for client, number in [*found, *((n, n) for n in range(CLIENTS + NAMES))]:
        record = LogRecord(body=any_value("x"), attributes=key_values({f"{key}{number}": 1, "k" * 500: 2}))
        note(wire, Signal.LOGS, logs(record, resource={"service.name": f"{client % 100}{service}"}))
        wire.note_rejected(f"{number}")
    told = wire.as_json()
    assert len(told["clients"]) <= CLIENTS + 1
    assert any(client["service"] == OTHERS for client in told["clients"])
    assert all(len(client["unmapped"]) <= NAMES + 1 for client in told["clients"])
    assert len(told["rejected"]) <= CLIENTS + 1
    total = len(found) + CLIENTS + NAMES
    assert sum(client["items"]["logs"] for client in told["clients"]) == total
    assert sum(told["rejected"].values()) == total
    json.dumps(told)
