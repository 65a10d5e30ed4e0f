"""What a listener demands, and where that is too little."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrund.model.errors import UsageError
from agentrund.service import exposure
from agentrund.service.config import Settings
from agentrund.service.settings_types import Address
from support.certificates import Authority

TOKEN = "abcdefghijklmnopqrstuvwxyz"
OUTWARD = [Address(host, 4317) for host in ("0.0.0.0", "::", "192.0.2.1", "2001:db8::1", "example.org", "0")]
INWARD = [Address(host, 0) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")]


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca")).sign("collector")


def demands(address, *, insecure=False, **settings):
    return exposure.demands(Settings(root=Path("/"), otlp_grpc=address, **settings), insecure=insecure)


@pytest.mark.parametrize("address", OUTWARD, ids=str)
def test_other_machines_are_not_let_in_for_nothing(address, signed, caplog):
    with pytest.raises(UsageError, match="other machines can reach otlp_grpc") as caught:
        demands(address)
    assert "--insecure" in caught.value.hint
    assert demands(address, token=TOKEN).token == TOKEN
    assert demands(address, tls_cert=signed.cert, tls_key=signed.key).credentials is not None
    caplog.clear()
    assert demands(address, insecure=True) == exposure.Demands()
    assert "takes data from whoever can reach it" in caplog.text


@pytest.mark.parametrize("address", [*INWARD, None], ids=str)
def test_this_machine_is(address, caplog):
    assert demands(address) == exposure.Demands()
    assert caplog.text == ""


@pytest.mark.parametrize("address", OUTWARD, ids=str)
def test_both_listeners_are_judged(address, signed):
    with pytest.raises(UsageError, match="other machines can reach http"):
        demands(INWARD[0], http=address)
    assert demands(INWARD[0], http=address, tls_cert=signed.cert, tls_key=signed.key).tls is not None
    demands(INWARD[0], http=address, insecure=True)


def test_what_is_set_is_demanded_everywhere(signed):
    found = demands(INWARD[0], token=TOKEN, tls_cert=signed.cert, tls_key=signed.key)
    assert (found.token, found.credentials is not None) == (TOKEN, True)


def test_a_token_that_can_be_overheard_is_warned_of(caplog):
    demands(OUTWARD[0], token=TOKEN)
    assert "learns the token" in caplog.text
    assert TOKEN not in caplog.text


def test_half_of_a_pair_is_no_pair(signed):
    with pytest.raises(UsageError, match="`tls_key` is missing"):
        demands(INWARD[0], tls_cert=signed.cert)
    with pytest.raises(UsageError, match="`tls_cert` is missing"):
        demands(INWARD[0], tls_key=signed.key)
    with pytest.raises(UsageError, match="`tls_cert` is missing"):
        demands(INWARD[0], tls_client_ca=signed.cert)


def test_files_that_do_not_fit_are_named(signed, tmp_path):
    other = Authority(tmp_path, "other")
    stranger = other.sign("stranger")
    with pytest.raises(UsageError, match="are not a pair"):
        demands(INWARD[0], tls_cert=signed.cert, tls_key=stranger.key)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        demands(INWARD[0], tls_cert=signed.cert, tls_key=tmp_path / "gone")
    text = tmp_path / "text"
    text.write_text("no certificate")
    with pytest.raises(UsageError, match=f"tls_client_ca {text}"):
        demands(INWARD[0], tls_cert=signed.cert, tls_key=signed.key, tls_client_ca=text)


def test_a_key_that_others_can_read_is_refused(tmp_path):
    signed = Authority(tmp_path).sign("collector")
    signed.key.chmod(0o644)
    with pytest.raises(UsageError, match="others can read the key in it"):
        demands(INWARD[0], tls_cert=signed.cert, tls_key=signed.key)
