from __future__ import annotations

from agentrund.model.otlp import SpanEvent
from agentrund.receivers.decode.attributes import Attributes
from agentrund.receivers.decode.call_fields import is_told, message_fields, take_call, take_usage


def test_of_several_counts_of_one_thing_the_first_convention_counts_and_the_rest_stays():
    attributes = Attributes({"gen_ai.usage.prompt_tokens": 7, "gen_ai.usage.input_tokens": 8, "x": 1})
    assert take_usage(attributes) == {"tokens_in": 8}
    assert attributes.rest == {"gen_ai.usage.prompt_tokens": 7, "x": 1}


def test_a_call_that_says_nothing_has_empty_payloads():
    assert take_call(Attributes({}), []) == ({}, {})


def test_an_answer_of_words_only_is_not_kept_twice():
    _, response = message_fields("gen_ai.choice", {"message": {"content": "yes"}})
    assert response == {"text": "yes"}


def test_which_events_of_a_span_are_told():
    told = [is_told(SpanEvent(name, 0.0, {})) for name in ("gen_ai.choice", "exception")]
    assert told == [True, False]
