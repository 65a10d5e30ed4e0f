from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.receivers.decode.conversation import answer, conversation, normalised, requested_tools

CALL = {"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": "x"}}


@pytest.mark.parametrize(
    ("sent", "parts"),
    [
        ({"parts": [{"type": "text", "content": "hi"}]}, [{"type": "text", "content": "hi"}]),
        ({"content": "hi"}, [{"type": "text", "content": "hi"}]),
        ({"content": [{"type": "text", "text": "hi"}]}, [{"type": "text", "content": "hi"}]),
        (
            {"content": '[{"text": "kept as it is"}]'},
            [{"type": "text", "content": '[{"text": "kept as it is"}]'}],
        ),
        ({"content": [{"text": "hi"}]}, [{"type": "text", "content": "hi"}]),
        ({"content": [{"toolUse": {"toolUseId": "c1", "name": "search", "input": {"q": "x"}}}]}, [CALL]),
        (
            {"content": [{"toolResult": {"toolUseId": "c1", "content": "r"}}]},
            [{"type": "tool_call_response", "id": "c1", "response": "r"}],
        ),
        ({"tool_calls": [{"id": "c1", "function": {"name": "search", "arguments": {"q": "x"}}}]}, [CALL]),
        ({"tool_calls": [{"id": "c1", "name": "search", "arguments": {"q": "x"}}]}, [CALL]),
        ({"message": {"content": "hi"}}, [{"type": "text", "content": "hi"}]),
        ({"parts": [{"type": "brand_new", "x": 1}]}, [{"type": "brand_new", "x": 1}]),
        ({"content": None}, []),
        ({}, []),
        ("hi", [{"type": "text", "content": "hi"}]),
        (None, []),
    ],
)
def test_every_shape_of_a_message_becomes_parts(sent, parts):
    assert normalised(sent) == {"role": "user", "parts": parts}


def test_a_tools_answer_names_its_call():
    assert normalised({"role": "tool", "tool_call_id": "c1", "content": "r"}) == {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": "c1", "response": "r"}],
    }


def test_a_conversation_reads_like_one():
    messages = [
        normalised({"role": "system", "content": "Be terse."}),
        normalised({"role": "assistant", "parts": [{"type": "text", "content": "Well:"}, CALL]}),
        normalised({"role": "tool", "id": "c1", "content": "21"}),
    ]
    assert (
        conversation(messages) == '[system]\nBe terse.\n\n[assistant]\nWell:\nsearch({"q":"x"})\n\n[tool]\n21'
    )


def test_an_answer_is_its_words_and_what_it_asks_for():
    messages = [normalised({"parts": [{"type": "text", "content": "a"}, CALL, CALL]}), normalised("b")]
    assert answer(messages) == "a\nb"
    assert requested_tools(messages) == [{"id": "c1", "name": "search", "args": {"q": "x"}}]
    assert answer([normalised({"parts": [CALL]})]) is None


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "role",
                        "parts",
                        "content",
                        "tool_calls",
                        "type",
                        "name",
                        "id",
                        "text",
                        "toolUse",
                        "message",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_anything_may_be_sent_as_a_message(value):
    message = normalised(value)
    assert isinstance(conversation([message]), str)
    answer([message])
    requested_tools([message])


def test_many_requested_tools_are_told_once_each():
    calls = [{"type": "tool_call", "id": str(n), "name": "t", "arguments": {"n": n}} for n in range(20_000)]
    found = requested_tools([{"role": "assistant", "parts": calls + calls}])
    assert [call["id"] for call in found] == [str(n) for n in range(20_000)]
