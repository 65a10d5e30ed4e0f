"""Colour rules, columns, and progress that only a terminal sees."""

from __future__ import annotations

import io

import pytest

from agentrund.cli import output
from agentrund.cli.colour import paint


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("choice", "stream", "env", "colored"),
    [
        ("auto", Terminal(), {}, True),
        ("auto", Terminal(), {"NO_COLOR": ""}, True),
        ("auto", Terminal(), {"NO_COLOR": "1"}, False),
        ("auto", Terminal(), {"TERM": "dumb"}, False),
        ("auto", io.StringIO(), {}, False),
        ("always", io.StringIO(), {"NO_COLOR": "1", "TERM": "dumb"}, True),
        ("never", Terminal(), {}, False),
    ],
)
def test_colour_rules(choice, stream, env, colored):
    assert output.use_color(choice, stream, env) == colored


def test_columns_line_up_whatever_the_script(capfdbinary):
    output.table(("A", "B"), [("日本", "x"), ("e\u0301", "y"), ("a\x1b\n", "z")], color=False)
    output.flush()
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines == ["A       B", "日本    x", "e\u0301       y", "a\\x1b⏎  z"]


def test_progress_is_silent_elsewhere(capsys):
    with output.progress("work") as show:
        show(1, 2)
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with output.progress("work") as show:
        show(1, 2)
        show(2, 2)
    assert "work" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


def test_a_bar_makes_way_for_what_is_printed(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    output.clear_bar()
    assert terminal.getvalue() == "\r\x1b[K"
    monkeypatch.setattr("sys.stderr", io.StringIO())
    output.clear_bar()
    assert output.sys.stderr.getvalue() == ""


@pytest.mark.parametrize(
    "line",
    [
        "#0016 14:23:14.000 +30.0s  tool.error    run_python   TimeoutError",
        "==== attempt 2 · started 2026-08-30 14:31:02 · pid 48211 · resume_seq 16 ====",
        "---- attempt 1 ended at 14:23:14 without run.end (process exited) ----",
        "┌──────────────────────────────────",
        "└─ #0004 end · 86 B ───────────────",
        "     open: #0015 run_python (tool.call, 30.0s)",
    ],
)
def test_painting_adds_codes_and_changes_nothing(line):
    painted = paint(line.encode() + b"\n")
    assert b"\x1b[" in painted
    bare = b"".join(part.split(b"m", 1)[-1] if n else part for n, part in enumerate(painted.split(b"\x1b[")))
    assert bare == line.encode() + b"\n"


def test_text_inside_a_frame_is_left_alone():
    assert paint(b'{"decision": "work"}\n\n') == b'{"decision": "work"}\n\n'


@pytest.mark.parametrize(
    ("octets", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (64 << 20, "64.0 MiB"), (84_291_234_816, "78.5 GiB")],
)
def test_sizes_for_people(octets, text):
    assert output.size(octets) == text


def test_counts_for_people():
    assert [output.count(n, "source") for n in (0, 1, 2)] == ["0 sources", "1 source", "2 sources"]
