from __future__ import annotations

import pytest

from agentrund.sequencer.otlp_commands import BY_PROCESS, BY_SESSION, RunKey


@pytest.mark.parametrize(
    "key", [RunKey(BY_SESSION, "a:b:c"), RunKey(BY_PROCESS, "pid-1-2"), RunKey(BY_SESSION, "")]
)
def test_a_key_is_read_back_from_its_text(key):
    assert RunKey.parse(str(key)) == key
