from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from agentrund.receivers.decode.otlp_repair import repair_strings
from agentrund.receivers.decode.protobuf_wire import Malformed
from support.otlp_build import span


def test_broken_strings_at_any_depth_become_readable_and_the_rest_stays():
    sent = span(
        attributes={"good": "ünï", "bad": "BROKEN", "deep": [{"in": "BROKEN"}], "n": 7}, name="BROKEN"
    )
    data = sent.SerializeToString().replace(b"BROKEN", b"br\xffken")
    with pytest.raises(DecodeError):
        Span.FromString(data)
    read = Span.FromString(repair_strings(data, Span.DESCRIPTOR))
    assert read.name == "br\ufffdken"
    assert read.attributes[1].value.string_value == "br\ufffdken"
    assert (
        read.attributes[2].value.array_value.values[0].kvlist_value.values[0].value.string_value
        == "br\ufffdken"
    )
    assert read.attributes[0] == sent.attributes[0]
    assert read.span_id == sent.span_id


def test_unknown_fields_pass_and_a_torn_message_does_not():
    data = span(name="x").SerializeToString()
    assert repair_strings(data + b"\xf8\x3f\x05", Span.DESCRIPTOR).endswith(b"\xf8\x3f\x05")
    with pytest.raises(Malformed):
        repair_strings(data[:-1], Span.DESCRIPTOR)
