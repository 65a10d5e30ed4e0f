from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from agentrund.model import kinds
from agentrund.model.otlp import BadItem, Encoding, Fault, MappedLog, Resource, Signal
from agentrund.receivers.decode.log_mapping import level_of
from agentrund.receivers.decode.mapping import map_item
from agentrund.receivers.decode.otlp import decode
from support import otlp_build as build
from support.otlp_build import T0, TRACE, hex_id


def mapped(body: Any = None, attributes: dict[str, Any] | None = None, **fields: Any) -> MappedLog:
    record = LogRecord(
        body=build.any_value(body),
        attributes=build.key_values(attributes or {}),
        time_unix_nano=round(T0 * 1e9),
        trace_id=bytes.fromhex(TRACE),
        span_id=bytes.fromhex(hex_id(1)),
        **fields,
    )
    (item,) = (
        i for i in decode(Signal.LOGS, Encoding.PROTOBUF, build.logs(record, scope="app.db")) if i is not None
    )
    out = map_item(item)
    assert isinstance(out, MappedLog)
    return out


def test_a_plain_record():
    log = mapped("connected", {"code.line.number": 7}, severity_number=9)
    assert (log.trace, log.span, log.fault, log.fills) == (TRACE, hex_id(1), None, None)
    event = log.event
    assert (event.type, event.name, event.ts, event.status) == (kinds.LOG, "app.db", T0, "INFO")
    assert event.payload == {"level": "INFO", "message": "connected", "attributes": {"code.line.number": 7}}


@pytest.mark.parametrize(
    ("number", "level"),
    [
        (0, "INFO"),
        (1, "TRACE"),
        (4, "TRACE"),
        (5, "DEBUG"),
        (9, "INFO"),
        (12, "INFO"),
        (13, "WARNING"),
        (17, "ERROR"),
        (20, "ERROR"),
        (21, "FATAL"),
        (24, "FATAL"),
    ],
)
def test_levels(number, level):
    assert level_of(number) == level


def test_a_structured_body_is_kept_and_read_as_text():
    payload = mapped({"a": 1}).event.payload
    assert (payload["message"], payload["body"]) == ('{"a":1}', {"a": 1})


@pytest.mark.parametrize(
    ("fields", "message", "name"),
    [
        ({"event_name": "an.event"}, "an.event", None),
        (
            {"event_name": "event src/x.rs:5", "attributes": {"event.name": "codex.thing"}},
            "codex.thing",
            None,
        ),
        ({"body": "a.dotted.word"}, "a.dotted.word", None),
        ({"body": "words", "event_name": "an.event"}, "words", "an.event"),
    ],
)
def test_event_names(fields, message, name):
    payload = mapped(**fields).event.payload
    assert (payload["message"], payload.get("event")) == (message, name)


def test_an_exception_is_a_fault_with_its_traceback_as_text():
    log = mapped(
        "tool failed",
        {"exception.type": "TimeoutError", "exception.message": "30s", "exception.stacktrace": "Traceback…"},
        severity_number=17,
    )
    assert log.fault == Fault("TimeoutError", "30s")
    assert log.event.payload["text"] == "Traceback…"
    assert log.event.status == "ERROR"


def test_details_of_a_call_are_its_content():
    log = mapped(
        None,
        {
            "gen_ai.request.model": "m",
            "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}],
            "gen_ai.usage.output_tokens": 3,
            "x": 1,
        },
        event_name="gen_ai.client.inference.operation.details",
    )
    prompt, response = log.fills
    assert prompt["text"] == "[user]\nhi"
    assert response == {"model": "m", "tokens_out": 3, "attributes": {"x": 1}}


def test_a_message_record_is_content_too():
    prompt, response = mapped({"content": "hi"}, event_name="gen_ai.user.message").fills
    assert (prompt["text"], prompt["messages"], response) == ("[user]\nhi", 1, {})
    prompt, response = mapped(
        {"finish_reason": "stop", "message": {"content": "yes"}}, event_name="gen_ai.choice"
    ).fills
    assert (prompt, response) == ({}, {"stop_reason": "stop", "text": "yes"})


def test_content_without_a_span_is_a_log():
    record = LogRecord(event_name="gen_ai.choice")
    (item,) = (i for i in decode(Signal.LOGS, Encoding.PROTOBUF, build.logs(record)) if i is not None)
    assert map_item(item).fills is None


def test_a_sessions_end_ends_it():
    assert mapped(None, {"session.id": "s"}, event_name="session.end").ends_session
    assert mapped(None, {"session.id": "s"}).session == "s"


def test_a_refused_item_leaves_a_warning():
    log = map_item(BadItem(3, Resource({"session.id": "s"}), Signal.TRACES, "trace id has 15 bytes", 99))
    assert (log.event.type, log.event.status, log.session) == (kinds.LOG, "WARNING", "s")
    assert log.event.payload["message"] == "OTLP traces item refused: trace id has 15 bytes"


def test_repairs_and_drops_are_shown():
    log = mapped("x", dropped_attributes_count=2)
    assert log.event.payload["otel"] == {"dropped": {"attributes": 2}}
