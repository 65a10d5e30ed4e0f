from __future__ import annotations

import pytest

from agentrund.service.cgroups import memory_limit

V1, V2 = "memory/{}/memory.limit_in_bytes", "{}/memory.max"
NONE_1 = str((1 << 63) - 4096)


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/a/b\n", {V2.format("a/b"): "500\n", V2.format("a"): "max\n"}, 500),
        ("0::/a/b\n", {V2.format("a/b"): "max\n", V2.format("a"): "300\n"}, 300),
        ("0::/a/b\n", {V2.format("a/b"): "400\n", V2.format("a"): "300\n"}, 300),
        ("0::/\n", {V2.format("."): "200\n"}, 200),
        ("0::/../x\n", {V2.format("."): "200\n"}, 200),
        ("0::/a\n", {}, None),
        ("0::/a\n", {V2.format("a"): "max\n"}, None),
        ("0::/a\n", {V2.format("a"): "nonsense"}, None),
        ("9:cpu:/a\n4:memory:/a\n0::/\n", {V1.format("a"): "700\n", V1.format("."): NONE_1}, 700),
        ("4:cpu,memory:/docker/1\n", {V1.format("."): "600\n"}, 600),
        ("4:memory:/a\n", {V1.format("a"): NONE_1}, None),
        ("", {}, None),
        ("no lines of it", {V2.format("."): "1"}, None),
    ],
)
def test_the_smallest_limit_on_the_way_up_counts(tmp_path, own, files, limit):
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert memory_limit(tmp_path / "own", tmp_path / "tree") == limit


def test_where_nothing_is_told_there_is_no_limit(tmp_path):
    assert memory_limit(tmp_path / "none", tmp_path / "none") is None
