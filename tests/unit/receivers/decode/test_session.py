from __future__ import annotations

import pytest

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
