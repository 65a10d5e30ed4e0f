from __future__ import annotations

import pytest
from google.rpc import error_details_pb2, status_pb2

from agentrund.receivers import rpc_status


@pytest.mark.parametrize("seconds", [0.0, 0.25, 5.0, 3600.5])
def test_the_bytes_are_what_the_published_messages_read(seconds):
    info = error_details_pb2.RetryInfo.FromString(rpc_status.retry_info(seconds))
    assert info.retry_delay.ToNanoseconds() == round(seconds * 1e9)
    status = status_pb2.Status.FromString(rpc_status.status(14, "später " * 40, seconds))
    assert (status.code, status.message) == (14, "später " * 40)
    detail = error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(detail)
    assert detail == info


def test_a_final_refusal_has_no_detail():
    status = status_pb2.Status.FromString(rpc_status.status(3, "no"))
    assert (status.code, status.message, len(status.details)) == (3, "no", 0)
