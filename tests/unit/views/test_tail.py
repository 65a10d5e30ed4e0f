"""Following agent.logs: whole lines only, through resumes, rebuilds and cuts."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

from agentrund.views.folder import Root
from agentrund.views.tail import Tail
from support.run_folder import CRASHED, RUN, write_run


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path, CRASHED)


@pytest.fixture
def start(folder):
    with ExitStack() as stack:

        def opened(after=None, last=20, *, as_json=False):
            tail = Tail(Root(folder.parents[1]), RUN, after=after, last=last, as_json=as_json)
            return stack.enter_context(tail)

        yield opened


def read_all(tail):
    parts = []
    while data := tail.read():
        parts.append(data)
    return b"".join(parts)


def test_the_whole_file_when_it_is_short(folder, start):
    assert read_all(start()) == (folder / "agent.logs").read_bytes()


def test_the_last_events_with_their_frames(folder, start):
    assert read_all(start(last=3)).startswith(b"#0004 ")
    assert read_all(start(last=0)).startswith(b"\n---- attempt 1 ended")


@pytest.mark.parametrize("seq", range(1, 6))
def test_after_an_event_comes_the_next_one(folder, start, seq):
    assert read_all(start(after=seq)).startswith(b"#%04d " % (seq + 1))


def test_after_the_last_event_comes_the_crash_marker(folder, start):
    assert b"---- attempt 1 ended" in read_all(start(after=6))


def test_after_what_is_not_there_yet_comes_nothing(folder, start):
    assert read_all(start(after=99)) == b""


def test_a_torn_line_is_waited_for(folder, start):
    tail = start(after=99)
    assert read_all(tail) == b""
    logs = folder / "agent.logs"
    with logs.open("ab") as file:
        file.write(b"#0007 14:22:")
        file.flush()
        assert read_all(tail) == b""
        file.write(b"40.000  +1.0s  log           -            more\n#0008")
        file.flush()
        assert read_all(tail) == b"#0007 14:22:40.000  +1.0s  log           -            more\n"


def test_a_rebuilt_file_is_read_on_after_the_last_event_shown(folder, start):
    tail = start()
    read_all(tail)
    logs = folder / "agent.logs"
    new = folder / "new"
    # The rebuilt bytes before the event differ in length: only the seq says where to go on.
    new.write_bytes(
        b"\n\n\n" + logs.read_bytes() + b"#0007 14:22:40.000  +1.0s  log           -            x\n"
    )
    new.rename(logs)
    assert read_all(tail).endswith(b"#0007 14:22:40.000  +1.0s  log           -            x\n")
    assert read_all(tail) == b""


def test_a_cut_file_is_read_on(folder, start):
    tail = start()
    read_all(tail)
    logs = folder / "agent.logs"
    logs.write_bytes(logs.read_bytes()[:40])
    assert read_all(tail) == b""
    with logs.open("ab") as file:
        file.write(b"\n#0007 14:22:40.000  +1.0s  log           -            x\n")
    assert b"#0007" in read_all(tail)


def test_a_file_that_appears_later(folder, start):
    logs = folder / "agent.logs"
    content = logs.read_bytes()
    logs.unlink()
    tail = start()
    assert read_all(tail) == b""
    logs.write_bytes(content)
    assert read_all(tail) == content


def test_a_line_longer_than_one_read(folder, start):
    line = b"#0007 14:22:40.000  +1.0s  log           -            " + b"x" * (3 << 20) + b"\n"
    with (folder / "agent.logs").open("ab") as file:
        file.write(line)
    assert read_all(start(last=1)).endswith(line)


def test_json_lines_are_those_of_the_trace(folder, start):
    lines = read_all(start(after=4, as_json=True)).splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [5, 6]
    assert [json.loads(line)["seq"] for line in read_all(start(last=1, as_json=True)).splitlines()] == [6]
