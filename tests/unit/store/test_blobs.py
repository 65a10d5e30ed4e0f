"""A blob's name never points to the wrong text."""

from __future__ import annotations

from hashlib import sha1

from hypothesis import given
from hypothesis import strategies as st

from agentrund.store.blobs import BlobStore
from agentrund.store.folder import Folder
from agentrund.store.unsynced import Held, Unsynced


def store(path) -> BlobStore:
    return BlobStore(lambda: Folder.root(path), Unsynced("run", lambda: Folder.root(path), Held()))


@given(st.lists(st.binary(max_size=50), max_size=6))
def test_what_goes_in_comes_out_and_equal_content_is_stored_once(tmp_path_factory, contents):
    path = tmp_path_factory.mktemp("blobs")
    blobs = store(path)
    for data in contents:
        ref = blobs.put(data)
        assert (path / ref).read_bytes() == data
        assert ref.removeprefix("blobs/").removesuffix(".txt") == sha1(data).hexdigest()[:8]
    assert len(list(path.glob("blobs/*"))) == len(set(contents))


def test_a_taken_name_gets_more_digits(tmp_path):
    data, digest = b"mine", sha1(b"mine").hexdigest()
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / f"{digest[:8]}.txt").write_bytes(b"somebody else's")
    assert store(tmp_path).put(data) == f"blobs/{digest[:12]}.txt"
    assert store(tmp_path).put(data) == f"blobs/{digest[:12]}.txt"
    assert (tmp_path / "blobs" / f"{digest[:12]}.txt").read_bytes() == data
