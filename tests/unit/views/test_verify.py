"""verify: a sound root has nothing to say of, every planted damage is named with file and offset."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from agentrund.formats import layout, metric_lines
from agentrund.views.check_transcript import first_difference
from agentrund.views.folder import Root
from agentrund.views.verify import verify
from support.metric_points import metric_line
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
    good = metric_line(RUN) + metric_lines.encode_full(RUN, 3)
    path.write_bytes(good)
    assert places(root) == []
    path.write_bytes(good + b'{"name":')
    assert places(root) == [(in_run("metrics.jsonl"), len(good))]
    for bad in (b'{"name":"x"}\n', b"[]\n", metric_line("20260830_142233_ffff"), b'{"kind":"sum"}\n'):
        path.write_bytes(bad + good)
        assert places(root) == [(in_run("metrics.jsonl"), 0)]


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
    at_work = root / layout.STATE / layout.LOCK
    at_work.parent.mkdir(mode=0o700)
    for owner, is_served in ((f'{{"pid":{os.getpid()}}}', True), ('{"pid":4194305}', False), ("", False)):
        at_work.write_text(owner)
        assert (found(root) == []) == is_served
    assert found(root) == [
        ("index.jsonl", 0, f"the row of {RUN} says running, but its trace has ended"),
    ]


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


OTHER = "20260830_150000_0001"


def edit(name, change):
    """Plant by changing a file's bytes; expected where the first one differs."""

    def plant(root):
        path = root / name
        before = path.read_bytes()
        after = change(before)
        assert after != before
        path.write_bytes(after)
        return name, first_difference(after, before)

    return plant


def lines(change, at=3):
    """Plant by changing the list of a trace's lines; expected at the beginning of line ``at``."""

    def plant(root):
        path = root / in_run("trace.jsonl")
        found = path.read_bytes().splitlines(keepends=True)
        where = sum(map(len, found[:at]))
        change(found)
        path.write_bytes(b"".join(found))
        return in_run("trace.jsonl"), where

    return plant


def line(old, new, at=3):
    """Plant by changing one line of a trace."""

    def change(found):
        assert old in found[at]
        found[at] = found[at].replace(old, new, 1)

    return lines(change, at)


def swap(found):
    found[3], found[4] = found[4], found[3]


def reset(found):
    for n, text in enumerate(found[3:], start=1):
        found[n + 2] = re.sub(rb'"seq":\d+', b'"seq":%d' % n, text, count=1)


def blob(change):
    """Plant in the longer of a run's blobs."""

    def plant(root):
        path = blobs_of(root)[1]
        where = change(path)
        return path.relative_to(root).as_posix(), where

    return plant


def truncated(path):
    os.truncate(path, 1000)
    return 1000


def changed(path):
    path.write_bytes(b"y" + path.read_bytes()[1:])
    return 0


def gone(path):
    path.unlink()
    return 0


def at(name, change, where=0):
    """Plant at a path; expected there."""

    def plant(root):
        change(root / name)
        return name, where

    return plant


def linked(path):
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def retarget(target):
    def change(path):
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return change


def row(change, which=0):
    """Plant by changing the list of index rows; expected at the beginning of row ``which``."""

    def plant(root):
        path = root / layout.INDEX
        rows = path.read_bytes().splitlines(keepends=True)
        where = sum(map(len, rows[:which]))
        change(rows)
        path.write_bytes(b"".join(rows))
        return layout.INDEX, where

    return plant


def set_row(old, new):
    def change(rows):
        assert old in rows[0]
        rows[0] = rows[0].replace(old, new)

    return change


KINDS = {
    "torn tail": lines(lambda found: found.append(b'{"run_id":"2026'), 99),
    "the last newline gone": lines(lambda found: found.append(found.pop()[:-1]), -1),
    "a newline gone between": line(b"}\n", b"}"),
    "a run of NULs": line(b'"type":"llm', b"\0" * 12),
    "a bit flipped in a number": line(b'"seq":4', b'"seq":5'),
    "a bit flipped in a key": line(b'"seq"', b'"req"'),
    "a bit flipped in a bracket": line(b'"payload":{', b'"payload":['),
    "a bit flipped in a text": edit(in_run("agent.logs"), lambda data: data.replace(b"triage", b"tsiage", 1)),
    "invalid UTF-8": line(b'"name":"tri', b'"name":"\xff\xfei'),
    "a line twice": lines(lambda found: found.insert(3, found[2])),
    "a line missing": lines(lambda found: found.pop(3)),
    "two lines swapped": lines(swap),
    "a blank line": lines(lambda found: found.insert(3, b"\n")),
    "carriage returns": line(b"}\n", b"}\r\n"),
    "a key twice": line(b'"seq":4', b'"seq":9,"seq":4'),
    "blanks between": line(b'"seq":4', b'"seq": 4'),
    "seq begins anew": lines(reset),
    "another run's id": line(RUN.encode(), OTHER.encode()),
    "another attempt": line(b'"attempt":1', b'"attempt":3'),
    "a parent still to come": line(b'"parent_seq":3', b'"parent_seq":8'),
    "a trace gone": at(in_run("trace.jsonl"), gone),
    "a blob gone": blob(gone),
    "a blob changed": blob(changed),
    "a blob truncated": blob(truncated),
    "an anchor too many": edit(
        in_run("agent.logs"), lambda data: data.replace(b"\n#0004", b"\n#0099 00:00:00.000 x\n#0004", 1)
    ),
    "an event missing": edit(
        in_run("agent.logs"), lambda data: re.sub(rb"\n#0002[^\n]*", b"", data, count=1)
    ),
    "a forged banner": edit(
        in_run("agent.logs"), lambda data: data.replace(b"\n\n#0004", b"\n==== attempt 2 ====\n\n#0004", 1)
    ),
    "a transcript gone": at(in_run("agent.logs"), gone),
    "an outline of before": edit(in_run("outline.md"), lambda data: data[: len(data) // 2]),
    "an outline edited": edit(in_run("outline.md"), lambda data: data.replace(b"triage", b"trlage", 1)),
    "analytics that count wrongly": edit(
        in_run("analytics.json"), lambda data: data.replace(b'"tool_calls": 7', b'"tool_calls": 8', 1)
    ),
    "meta edited": edit(in_run("meta.json"), lambda data: data.replace(b"explore", b"Explore", 1)),
    "a point half written": at(
        in_run("metrics.jsonl"), lambda path: path.write_bytes(metric_line(RUN)[:-9]), 0
    ),
    "a row gone": row(lambda rows: rows.pop(1), 0),
    "a row twice": row(lambda rows: rows.append(rows[0])),
    "a row of no run": row(lambda rows: rows.append(b'{"run_id":"20200101_000000_0000"}\n'), 2),
    "a row that is none": row(lambda rows: rows.insert(1, b"\0" * 100 + b"\n"), 1),
    "a row that counts wrongly": row(set_row(b'"tool_calls":7', b'"tool_calls":8')),
    "a row that says running": row(set_row(b'"status":"failed"', b'"status":"running"')),
    "latest dangling": at("latest", retarget("runs/20200101_000000_0000")),
    "latest leading out": at("latest", retarget("/etc")),
    "a session's link to another's run": at("sessions/sess_kaggle_eda_7c", retarget(f"../runs/{OTHER}")),
    "a session of no run": at("sessions/made_up", retarget(f"../runs/{RUN}")),
    "a file others can write": at(in_run("trace.jsonl"), lambda path: path.chmod(0o666)),
    "a folder others can write": at("runs", lambda path: path.chmod(0o777)),
    "a link for a file": at(in_run("outline.md"), linked),
    "a FIFO": at(in_run("fifo"), os.mkfifo),
    "a link for a run": at("runs/20200101_000000_0000", lambda path: path.symlink_to(RUN)),
    "a folder that is no run": at("runs/mine", Path.mkdir),
    "a file among the runs": at("runs/notes.txt", Path.touch),
    "NAVIGATE.md edited": edit("NAVIGATE.md", lambda data: data[:9] + b"!" + data[10:]),
    "NAVIGATE.md gone": at("NAVIGATE.md", gone),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_damage_is_named_with_file_and_offset(root, kind):
    path, offset = KINDS[kind](root)
    assert (path, offset) in places(root)


def test_reading_changes_nothing(root):
    before = {p: (p.lstat().st_mtime_ns, p.lstat().st_size) for p in root.rglob("*")}
    found(root)
    assert {p: (p.lstat().st_mtime_ns, p.lstat().st_size) for p in root.rglob("*")} == before
