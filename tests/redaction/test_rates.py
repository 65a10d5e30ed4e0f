"""How many planted secrets are masked, and how many innocents with them: the figures in client/README.md."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from agentrund_client.redact import MASK, redact, redact_line
from redaction.corpus import innocents, planted

PIECE = 12
"""So much of a secret in a row counts as leaked."""


def leaks(secret: str, value: object) -> bool:
    """Whether a piece of a secret is still in what is stored, as it is or as JSON escapes it."""
    text = json.dumps(value, ensure_ascii=False)
    return any(secret[at : at + PIECE] in text for at in range(max(1, len(secret) - PIECE + 1)))


def test_the_corpus_is_large_and_leaks_before():
    found = planted()
    assert len(found) >= 600
    assert len({one.shape for one in found}) >= 60
    assert len({one.place for one in found}) >= 15
    assert all(leaks(one.secret, one.value) or "chunks" in one.value for one in found)
    assert len(innocents()) >= 500


@pytest.mark.parametrize("seed", [1, 11, 111])
def test_every_planted_secret_is_masked(seed):
    missed = [one for one in planted(seed) if leaks(one.secret, redact(one.value))]
    assert missed == []


def test_no_innocent_is():
    masked = [one for one in innocents() if redact(one.value) != one.value]
    assert masked == []


def test_what_was_masked_is_counted_by_rule():
    found: dict[str, int] = {}
    for one in planted():
        redact(one.value, found)
    assert sum(found.values()) >= len(planted())
    assert {"key", "assigned", "authorization", "private-key", "jwt", "github"} <= found.keys()
    nothing: dict[str, int] = {}
    for innocent in innocents():
        redact(innocent.value, nothing)
    assert nothing == {}


def test_a_line_is_masked_as_its_frame_is():
    for one in planted():
        line = (
            json.dumps({"n": 1, "type": "log", "payload": one.value}, separators=(",", ":")).encode() + b"\n"
        )
        masked = redact_line(line)
        assert not leaks(one.secret, json.loads(masked))
        assert redact_line(masked) == masked, "what is masked stays as it is"


def test_the_mask_says_how_many_and_nothing_of_what():
    masked = Counter(json.dumps(redact(one.value)).count(MASK) > 0 for one in planted())
    assert masked == {True: len(planted())}
