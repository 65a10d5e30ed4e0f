"""verify: a sound root has nothing to say of, every planted damage is named with file and offset."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentrund.formats import layout
from agentrund.views.folder import Root
from agentrund.views.verify import verify
from support.records import RUN, Book
from support.run_root import seed_book, write_run


@pytest.fixture
def root(tmp_path):
    write_run(tmp_path, seed_book())
    write_run(tmp_path, seed_book("20260830_150000_0001", "other session"))
    return tmp_path


def found(root, runs=None):
    return [
        (Path(f.path).relative_to(root).as_posix(), f.offset, f.message) for f in verify(Root(root), runs)
    ]


def places(root, runs=None):
    return [(path, offset) for path, offset, _ in found(root, runs)]


def in_run(name):
    return f"runs/{RUN}/{name}"


def test_a_sound_root_has_no_findings(root):
    assert found(root) == []


def test_an_open_run_may_have_no_derived_files_and_a_transcript_that_lags(tmp_path):
    book = Book()
    book.start()
    book.add("log", None, {"message": "x"})
    folder = write_run(tmp_path, book, finished=False)
    logs = folder / layout.LOGS
    assert found(tmp_path) == []
    logs.write_bytes(logs.read_bytes()[:-20])
    assert found(tmp_path) == []
    logs.unlink()
    assert found(tmp_path) == []
    logs.write_bytes(b"==== nonsense\n")
    assert places(tmp_path) == [(in_run("agent.logs"), 5)]


def test_every_finding_says_what_to_do(root):
    (root / in_run("agent.logs")).write_bytes(b"")
    assert all(finding.hint for finding in verify(Root(root)))


def line_start(data, number):
    return sum(len(line) for line in data.splitlines(keepends=True)[:number])


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b'"payload":{', b'"payload":{"x":NaN,', "not a trace record"),
        (b'"seq":4,', b'"seq":40,', "seq is 40, 4 must follow"),
        (b'"type":"llm', b'"type":"\xff\xfe', "not a trace record"),
        (b'"attempt":1,"ts"', b'"attempt":2,"ts"', "attempt is 2 during attempt 1"),
        (b'"name":"triage",', b"", "keys are"),
        (b'"status":null,', b'"x":1,"status":null,', "keys are"),
        (b'"parent_seq":3', b'"parent_seq":2', "llm.response cannot close #0002, which is no llm.prompt"),
        (b'"parent_seq":3', b'"parent_seq":99', "parent_seq 99 is no step that was opened before"),
        (b'"run_id":"2026', b'"run_id":"2025', "run_id is 2025"),
        (b"14:22:35.500", b"14:22:35.501", "are different times"),
        (b"{", b"", "not a trace record"),
    ],
)
def test_a_damaged_trace_line(root, old, new, says):
    path = root / in_run("trace.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    assert old in lines[3]
    lines[3] = lines[3].replace(old, new, 1)
    path.write_bytes(b"".join(lines))
    where = [
        (offset, message) for name, offset, message in found(root, [RUN]) if name == in_run("trace.jsonl")
    ]
    assert where[0][0] == sum(map(len, lines[:3]))
    assert says in where[0][1]


def test_a_torn_last_line(root):
    path = root / in_run("trace.jsonl")
    data = path.read_bytes()
    path.write_bytes(data[:-10])
    last = line_start(data, len(data.splitlines()) - 1)
    assert (in_run("trace.jsonl"), last) in places(root, [RUN])


def test_a_trace_that_is_gone(root):
    (root / in_run("trace.jsonl")).unlink()
    assert places(root, [RUN]) == [(in_run("trace.jsonl"), 0)]


@pytest.mark.parametrize("name", ["agent.logs", "analytics.json", "outline.md", "meta.json"])
def test_a_changed_byte_in_a_file_made_from_the_trace(root, name):
    path = root / in_run(name)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert places(root) == [(in_run(name), 100)]


@pytest.mark.parametrize("name", ["agent.logs", "analytics.json", "outline.md", "meta.json"])
def test_a_file_made_from_the_trace_is_cut_or_gone_or_longer(root, name):
    path = root / in_run(name)
    data = path.read_bytes()
    path.write_bytes(data[:50])
    assert places(root) == [(in_run(name), 50)]
    path.write_bytes(data + b"x")
    assert places(root) == [(in_run(name), len(data))]
    path.unlink()
    assert places(root) == [(in_run(name), 0)]


def blobs_of(root):
    return sorted((root / in_run("blobs")).iterdir(), key=lambda path: path.stat().st_size)


def test_damaged_blobs(root):
    short, long = blobs_of(root)
    data = long.read_bytes()
    long.write_bytes(data[:100])
    assert places(root) == [(in_run(f"blobs/{long.name}"), 100)]
    long.write_bytes(b"y" + data[1:])
    assert found(root)[0][2].startswith("its SHA-1 is")
    long.write_bytes(data)
    short.unlink()
    assert places(root) == [(in_run(f"blobs/{short.name}"), 0)]


def test_an_object_that_only_looks_like_a_blob_pointer_is_no_damage(tmp_path):
    book = Book()
    book.start()
    book.add("tool.call", "x", {"args": {"a": {"ref": "../../etc/passwd", "preview": "", "bytes": 3}}})
    book.end()
    write_run(tmp_path, book)
    assert found(tmp_path) == []


@pytest.mark.parametrize("name", ["trace.jsonl", "agent.logs", "analytics.json", "blobs"])
def test_links_inside_a_run(root, name):
    path = root / in_run(name)
    path.rename(root / "elsewhere")
    path.symlink_to(root / "elsewhere")
    assert (in_run(name), 0) in places(root)


def test_a_fifo_and_a_second_name(root):
    os.mkfifo(root / in_run("fifo"))
    os.link(root / in_run("trace.jsonl"), root / "outside")
    assert sorted(places(root)) == [(in_run("fifo"), 0), (in_run("trace.jsonl"), 0)]


def test_artifacts_belong_to_the_agent(root):
    artifacts = root / in_run("artifacts")
    artifacts.mkdir()
    (artifacts / "plot.png").symlink_to("/anywhere")
    assert found(root) == []


def test_metric_points(root):
    path = root / in_run("metrics.jsonl")
    path.write_bytes(b'{"name":"x"}\n{"name":')
    assert places(root) == [(in_run("metrics.jsonl"), 13)]


def test_index_rows(root):
    path = root / layout.INDEX
    data = path.read_bytes()
    second = data.index(b"\n") + 1
    path.write_bytes(data[:second] + b"\x00" + data[second + 1 :])
    assert places(root) == [("index.jsonl", second), ("index.jsonl", 0)]
    path.write_bytes(data.replace(b'"tool_calls":7', b'"tool_calls":8', 1))
    assert [(p, o) for p, o, m in found(root) if "tool_calls" in m] == [("index.jsonl", 0)]
    path.write_bytes(b" " * (second - 1) + b"\n" + data[second:])
    assert found(root) == [("index.jsonl", 0, f"no row for run {RUN}")]
    path.unlink()
    assert ("index.jsonl", 0) in places(root)


def test_a_row_without_a_run(root):
    path = root / layout.INDEX
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b'{"run_id":"20200101_000000_0000"}\n')
    assert set(places(root)) == {("index.jsonl", size)}


def test_a_row_that_says_running_of_a_run_that_has_ended_waits_for_its_collector(root):
    for name in ("outline.md", "analytics.json", "meta.json"):
        (root / in_run(name)).unlink()
    path = root / layout.INDEX
    path.write_bytes(path.read_bytes().replace(b'"status":"failed"', b'"status":"running"', 1))
    assert found(root) == []


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("latest", "/etc"),
        ("latest", "runs/../../x"),
        ("latest", "runs/20200101_000000_0000"),
        ("sessions/sess_kaggle_eda_7c", f"runs/{RUN}"),
        ("sessions/sess_kaggle_eda_7c", "/tmp"),
    ],
)
def test_links_that_point_elsewhere(root, name, target):
    (root / name).unlink()
    (root / name).symlink_to(target)
    assert places(root) == [(name, 0)]


def test_a_file_where_a_link_should_be(root):
    (root / "latest").unlink()
    (root / "latest").write_text("x")
    assert places(root) == [("latest", 0)]


def test_navigate(root):
    path = root / layout.NAVIGATE
    data = path.read_bytes()
    path.write_bytes(data[:9] + b"!" + data[10:])
    assert places(root) == [("NAVIGATE.md", 9)]


def test_one_run_is_judged_alone(root):
    (root / in_run("outline.md")).unlink()
    assert found(root, ["20260830_150000_0001"]) == []


def test_a_broken_promise_of_the_collectors_own_records_is_named_where_it_stands(root):
    path = root / in_run("trace.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if b'"type":"source.exit"' in line)
    lines[number] = lines[number].replace(b'"status":"error"', b'"status":"ok"')
    path.write_bytes(b"".join(lines))
    message = "status of a source.exit with cause 'process exited: killed by SIGKILL' is ok; it must be error"
    assert (in_run("trace.jsonl"), sum(map(len, lines[:number])), message) in found(root, [RUN])


@pytest.mark.parametrize("name", ["", "trace.jsonl", "outline.md", "blobs"])
def test_what_others_can_write(root, name):
    path = root / in_run(name)
    for added, is_finding in ((0o055, False), (0o020, True), (0o002, True)):
        path.chmod(0o700 | added)
        assert (places(root) == [(path.relative_to(root).as_posix(), 0)]) == is_finding
        assert ("not only its owner can write it" in str(found(root))) == is_finding


@pytest.mark.parametrize("name", [".", "runs", "sessions", "index.jsonl", "NAVIGATE.md"])
def test_what_others_can_write_in_the_root_beside_the_runs(root, name):
    (root / name).chmod(0o770)
    assert places(root) == [(name, 0)]
    assert places(root, [RUN]) == []


def test_artifacts_may_be_writable_by_whom_the_agent_likes(root):
    folder = root / in_run("artifacts")
    folder.mkdir()
    folder.chmod(0o777)
    assert found(root) == []


def test_progress_counts_runs(root):
    told = []
    for runs in (None, [RUN]):
        assert list(verify(Root(root), runs, lambda done, total: told.append((done, total)))) == []
    assert told == [(1, 2), (2, 2), (1, 1)]


def test_reading_changes_nothing(root):
    before = {p: (p.lstat().st_mtime_ns, p.lstat().st_size) for p in root.rglob("*")}
    found(root)
    assert {p: (p.lstat().st_mtime_ns, p.lstat().st_size) for p in root.rglob("*")} == before
