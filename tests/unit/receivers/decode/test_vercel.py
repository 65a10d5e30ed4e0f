"""Messages and answers of Vercel's AI SDK, by the names everybody else's have."""

from __future__ import annotations

import json

from agentrund.receivers.decode.attributes import Attributes
from agentrund.receivers.decode.call_fields import take_call

CALL = {"toolCallId": "c1", "toolName": "get_weather", "input": {"city": "Paris"}}


def test_a_prompt_with_calls_and_results():
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {"role": "assistant", "content": [{"type": "tool-call", **CALL}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "output": "sunny"}]},
    ]
    prompt, _ = take_call(Attributes({"ai.prompt.messages": json.dumps(messages)}), [])
    assert prompt["messages"] == 4
    assert [part["type"] for message in prompt["input"] for part in message["parts"]] == [
        *("text", "text", "tool_call", "tool_call_response"),
    ]
    assert 'get_weather({"city":"Paris"})' in prompt["text"]


def test_an_answer_that_asks_for_tools():
    attributes = Attributes({"ai.response.text": "Let me see.", "ai.response.toolCalls": json.dumps([CALL])})
    _, response = take_call(attributes, [])
    assert response["text"] == "Let me see."
    assert response["requested_tools"] == [{"id": "c1", "name": "get_weather", "args": {"city": "Paris"}}]
    assert attributes.rest == {}


def test_what_cannot_be_read_is_kept_as_it_came():
    attributes = Attributes({"ai.prompt.messages": "no JSON", "ai.response.toolCalls": "[5]"})
    prompt, response = take_call(attributes, [])
    assert prompt["text"] == "no JSON"
    assert response == {}
    assert attributes.rest == {"ai.response.toolCalls": "[5]"}
