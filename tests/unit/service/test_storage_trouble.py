from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agentrund.model.errors import Busy, Unavailable
from agentrund.service.storage_trouble import StorageTrouble
from support.fake_clock import FakeClock


@pytest.fixture
def trouble():
    return StorageTrouble(FakeClock(datetime(2026, 8, 30, tzinfo=UTC)), lambda: True)


def test_what_the_disk_refuses_is_trouble_of_the_storage(trouble, caplog):
    trouble.refused("trace of r", Unavailable("no space"))
    assert (trouble.status()["refusals"], trouble.last_error) == (1, "trace of r: no space")
    assert [r.message.partition(":")[0] for r in caplog.records] == ["storage refuses, senders wait"]


def test_what_waits_for_us_is_no_fault_of_the_storage(trouble, caplog):
    for _ in range(3):
        trouble.refused("OTLP data", Busy("run r is being read back"))
    assert trouble.status() == {"since": None, "refusals": 0}
    assert trouble.last_error is None
    assert [r.message for r in caplog.records] == [
        "senders wait for us: OTLP data: run r is being read back (said once a minute)"
    ]
