"""Compressed bodies: every form senders use comes back whole or not at all, and never larger than allowed."""

from __future__ import annotations

import gzip
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from agentrund.model.errors import Rejected
from agentrund.receivers.otlp_inflate import CODINGS, PIECE, TooLargeError, inflate


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


FORMS = {
    "gzip": ("gzip", gzip.compress),
    "gzip, several members": (
        "gzip",
        lambda d: gzip.compress(d[:7]) + gzip.compress(b"") + gzip.compress(d[7:]),
    ),
    "gzip, padded": ("gzip", lambda d: gzip.compress(d) + bytes(20)),
    "deflate": ("deflate", zlib.compress),
    "deflate, bare": ("deflate", raw_deflate),
    "zstd": ("zstd", zstandard.compress),
    "zstd, several frames": ("zstd", lambda d: zstandard.compress(d[:7]) + zstandard.compress(d[7:])),
}


@pytest.mark.parametrize("form", FORMS)
@given(data=st.binary(max_size=300) | st.integers(1, 3_000_000).map(lambda n: b"ab" * n))
def test_what_was_compressed_comes_back(form, data):
    coding, compress = FORMS[form]
    assert b"".join(inflate(coding, compress(data), len(data))) == data


@pytest.mark.parametrize("form", sorted(FORMS.keys() - {"gzip, padded"}))
def test_a_body_that_is_cut_off_is_refused_wherever(form):
    coding, compress = FORMS[form]
    whole = compress(b"something to say, " * 50)
    members = [len(compress(b"something to say, " * 50)[:0])]
    for cut in range(1, len(whole)):
        try:
            found = b"".join(inflate(coding, whole[:cut], 10_000))
        except Rejected:
            continue
        members.append(cut)
        assert "several" in form, (cut, found)
    assert len(members) <= 3, "only between two members a cut cannot be seen"


@pytest.mark.parametrize("coding", CODINGS)
def test_what_is_no_such_thing_is_refused(coding):
    for junk in (b"hello", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\xff" * 40):
        with pytest.raises(Rejected, match=coding):
            list(inflate(coding, junk, 100))


@pytest.mark.parametrize("form", FORMS)
def test_a_bomb_stops_at_the_limit_in_bounded_pieces(form):
    coding, compress = FORMS[form]
    bomb = compress(bytes(60 << 20))
    taken = []
    with pytest.raises(TooLargeError):
        taken.extend(map(len, inflate(coding, bomb, 10 << 20)))
    assert max(taken) <= PIECE
    assert sum(taken) <= 10 << 20


def test_a_window_beyond_what_http_allows_is_refused():
    packer = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    ).compressobj()
    body = packer.compress(bytes(range(256)) * 70_000) + packer.flush()
    with pytest.raises(Rejected, match="zstd"):
        list(inflate("zstd", body, 1 << 30))
