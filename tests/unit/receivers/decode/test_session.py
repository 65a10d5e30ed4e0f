from __future__ import annotations

import pytest

from agentrund.model.event import MAX_SESSION
from agentrund.receivers.decode.session import session_of


@pytest.mark.parametrize(
    ("attributes", "resource", "session"),
    [
        ({"gen_ai.conversation.id": "c", "session.id": "s"}, {}, "s"),
        ({"agentrund.session_id": "a", "session.id": "s"}, {}, "a"),
        ({"metadata": '{"thread_id": "t"}'}, {"session.id": "r"}, "t"),
        ({"metadata": '{"thread_id": 5}'}, {"session.id": "r"}, "r"),
        ({"metadata": "broken {"}, {}, None),
        ({"session.id": ""}, {}, None),
        ({"session.id": 7}, {}, "7"),
        ({}, {}, None),
    ],
)
def test_where_a_session_stands(attributes, resource, session):
    assert session_of(attributes, resource) == session


def test_a_long_session_id_is_cut_and_stays_one_of_its_own():
    one, other = (session_of({"session.id": "s" * 5000 + end}, {}) for end in "ab")
    assert one is not None
    assert other is not None
    assert (len(one), len(other)) == (MAX_SESSION, MAX_SESSION)
    assert one != other
    assert one.startswith("s" * 900)
