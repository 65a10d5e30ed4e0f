from __future__ import annotations

import json

from agentrund.receivers.decode import genai
from agentrund.receivers.decode.attributes import Attributes

TEXT = {"type": "text", "content": "hi"}


def test_messages_are_read_as_json_or_as_they_are():
    sent = [{"role": "user", "parts": [TEXT]}]
    for value in (sent, json.dumps(sent)):
        attributes = Attributes(
            {
                "gen_ai.input.messages": value,
                "gen_ai.system_instructions": json.dumps([{**TEXT, "content": "sys"}]),
            }
        )
        assert genai.take_input(attributes) == [
            {"role": "system", "parts": [{"type": "text", "content": "sys"}]},
            {"role": "user", "parts": [TEXT]},
        ]
        assert attributes.rest == {}


def test_flattened_messages_are_read():
    attributes = Attributes(
        {
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "hi",
            "gen_ai.completion.0.content": "yes",
            "gen_ai.completion.0.finish_reason": "stop",
        }
    )
    assert genai.take_input(attributes) == [{"role": "user", "parts": [TEXT]}]
    messages, reasons = genai.take_output(attributes)
    assert messages == [{"role": "assistant", "parts": [{"type": "text", "content": "yes"}]}]
    assert reasons == ["stop"]


def test_events_tell_one_message_each():
    assert genai.event_message("gen_ai.user.message", {"content": "hi"})[0] == {
        "role": "user",
        "parts": [TEXT],
    }
    assert genai.event_message("gen_ai.system.message", None)[0] == {"role": "system", "parts": []}
    choice = {"finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
    assert genai.event_message("gen_ai.choice", choice) == ({"role": "assistant", "parts": [TEXT]}, ["stop"])


def test_blocks_written_as_json_text_are_blocks_and_other_text_is_text():
    blocks = json.dumps([{"text": "hi"}])
    assert genai.event_message("gen_ai.choice", {"message": blocks})[0]["parts"] == [TEXT]
    plain = json.dumps([{"answer": 1}])
    assert genai.event_message("gen_ai.choice", {"message": plain})[0]["parts"] == [
        {"type": "text", "content": plain}
    ]


def test_which_events_tell_a_message():
    assert genai.is_message_event("gen_ai.choice")
    assert genai.is_message_event("gen_ai.tool.message")
    assert not genai.is_message_event("exception")
