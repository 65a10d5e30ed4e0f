"""What came lately: for as long as is promised, and of as many, and not for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentrund.store.recent import Recent

KEEP_S, MOST = 100.0, 20


@given(st.lists(st.floats(0, 40), max_size=200))
def test_what_is_recent_is_known_and_what_is_kept_is_bounded(gaps):
    recent, now, came = Recent(KEEP_S, MOST), 0.0, []
    for n, gap in enumerate(gaps):
        now += gap
        digest = n.to_bytes(4, "big")
        assert not recent.has(digest, now)
        recent.add(digest, now)
        came.append((now, digest))
        assert all(recent.has(old, now) for at, old in came[-MOST:] if at > now - KEEP_S)
        assert len(recent) <= MOST * 1.5
    assert not any(recent.has(old, now + KEEP_S + 1) for _, old in came)
