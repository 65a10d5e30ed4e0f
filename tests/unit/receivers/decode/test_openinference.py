from __future__ import annotations

from agentrund.receivers.decode import openinference
from agentrund.receivers.decode.attributes import Attributes

P = "llm.input_messages."


def test_flattened_messages_are_read():
    attributes = Attributes(
        {
            f"{P}0.message.role": "system",
            f"{P}0.message.contents.0.message_content.type": "text",
            f"{P}0.message.contents.0.message_content.text": "Be terse.",
            f"{P}1.message.role": "assistant",
            f"{P}1.message.contents.0.message_content.type": "tool_use",
            f"{P}1.message.tool_calls.1.tool_call.id": "c1",
            f"{P}1.message.tool_calls.1.tool_call.function.name": "search",
            f"{P}1.message.tool_calls.1.tool_call.function.arguments": '{"q":1}',
            f"{P}2.message.role": "tool",
            f"{P}2.message.tool_call_id": "c1",
            f"{P}2.message.content": "found",
            f"{P}3.message.contents.0.message_content.type": "image",
            f"{P}3.message.contents.0.message_content.image.image.url": "u",
            f"{P}4.odd": "x",
            "other": 1,
        }
    )
    assert openinference.take_messages(attributes, P, "user") == [
        {"role": "system", "parts": [{"type": "text", "content": "Be terse."}]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c1", "name": "search", "arguments": '{"q":1}'}],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "found"}]},
        {"role": "user", "parts": [{"type": "image", "image": {"image": {"url": "u"}}}]},
        {"role": "user", "parts": []},
    ]
    assert attributes.rest == {"other": 1}


def test_a_handoff_is_one_tool_whoever_it_goes_to():
    kind = Attributes({"openinference.span.kind": "TOOL"})
    assert openinference.tool_name("handoff to weather_agent", kind) == "handoff"
    assert openinference.tool_name("search", kind) == "search"
    assert openinference.tool_name("handoff to x", Attributes({})) == "handoff to x"
