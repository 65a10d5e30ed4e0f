from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.receivers.decode.attributes import PARSE_LEVELS, PARSE_MAX, Attributes, as_text, parse

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_what_is_taken_is_gone_and_the_rest_stays():
    attributes = Attributes({"a": "", "b": 1, "c": 2})
    assert attributes.take("a", "missing", "b", "c") == 1
    assert attributes.look("c") == 2
    assert attributes.rest == {"a": "", "c": 2}
    assert attributes.take("x") is None


def test_the_sender_keeps_its_own():
    sent = {"a": 1}
    Attributes(sent).take("a")
    assert sent == {"a": 1}


@pytest.mark.parametrize(("value", "count"), [(5, 5), (5.0, 5), (0, 0)])
def test_counts(value, count):
    assert Attributes({"n": value}).take_count("n") == count


@pytest.mark.parametrize("value", [True, -1, 1.5, "5", "NaN", None, [1]])
def test_what_is_no_count_stays(value):
    attributes = Attributes({"n": value})
    assert attributes.take_count("n") is None
    assert attributes.rest == {"n": value}


def test_amounts_and_texts():
    attributes = Attributes({"cost": 0.5, "flag": True, "list": ["a"]})
    assert attributes.take_amount("flag", "cost") == 0.5
    assert attributes.take_text("list") == '["a"]'
    assert attributes.take_text("none") is None


def test_flattened_lists_come_back_in_order_however_sparse():
    attributes = Attributes(
        {
            "m.10.role": "z",
            "m.2.role": "a",
            "m.2.calls.1.id": "one",
            "m.2.calls.0.id": "zero",
            "m.2.content": "text",
            "m.2.content.extra": "odd",
            "m.x": "left",
            "m.3": "left",
            "other": "left",
        }
    )
    assert attributes.take_list("m.") == [
        {"role": "a", "calls": [{"id": "zero"}, {"id": "one"}], "content": {"": "text", "extra": "odd"}},
        {"role": "z"},
    ]
    assert set(attributes.rest) == {"m.x", "m.3", "other"}


def test_keys_that_would_build_no_list_anybody_could_read_are_left_as_they_are():
    odd = {"m.0." + "a." * 100_000 + "b": 1, "m." + "9" * 5000 + ".a": 2}
    attributes = Attributes({**odd, "m.0.role": "a"})
    assert attributes.take_list("m.") == [{"role": "a"}]
    assert attributes.rest == odd


def test_no_value_is_lost_where_a_key_is_both_a_value_and_a_prefix():
    for keys in (("m.0.a", "m.0.a.b"), ("m.0.a.b", "m.0.a")):
        (entry,) = Attributes({key: key for key in keys}).take_list("m.")
        assert entry == {"a": {"": "m.0.a", "b": "m.0.a.b"}}


@given(st.dictionaries(st.text(alphabet="m.01x", max_size=8), st.integers(), max_size=8))
def test_any_keys_can_be_put_together(values):
    attributes = Attributes(values)
    assert len(attributes.take_list("m.")) <= len(values)


@given(JSON_VALUES)
def test_json_text_says_what_it_says(value):
    text = json.dumps(value)
    assert parse(text) == (value if isinstance(value, (dict, list)) else text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("", ""),
        ("{broken", "{broken"),
        ("[1] and more", "[1] and more"),
        ('{"n": NaN}', {"n": "NaN"}),
        ('{"n": 123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
        ('{"s": "\\ud800"}', {"s": "\ufffd"}),
        (None, None),
        ({"already": 1}, {"already": 1}),
    ],
)
def test_odd_texts(text, value):
    assert parse(text) == value


def test_a_text_too_long_to_read_stays_text():
    text = "[" + "1," * PARSE_MAX + "1]"
    assert parse(text) is text


@pytest.mark.parametrize("levels", [PARSE_LEVELS + 1, 500, 100_000])
def test_a_text_too_deep_to_be_kept_as_data_stays_text(levels):
    text = "[" * levels + "]" * levels
    assert parse(text) is text
    assert parse("[" * PARSE_LEVELS + "]" * PARSE_LEVELS) != text


def test_values_as_text():
    assert as_text("a") == "a"
    assert as_text({"a": [1, None]}) == '{"a":[1,null]}'
