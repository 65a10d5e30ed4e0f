"""outline.md: nesting, pairing, folding, caps, footers, and no live Markdown from a payload."""

from __future__ import annotations

import gc
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrund.formats import outline_rows, outline_text
from agentrund.formats.derive import derive
from agentrund.formats.escape import markdown
from support.records import Book
from support.run_root import seed_book


def outline(book):
    return derive(book.records).outline.decode()


def rows(book):
    return [line for line in outline(book).split("\n") if line.startswith("#") and not line.startswith("# ")]


def begun():
    book = Book()
    book.start(at=0)
    return book


def tool(book, name="t", parent=None, *, error=None, dur_ms=500):
    call = book.add("tool.call", name, parent=parent)
    payload = {"error_type": error, "error": "no"} if error else {}
    kind, status = ("tool.error", "error") if error else ("tool.result", "ok")
    return call, book.add(kind, name, payload, parent=call, status=status, dur_ms=dur_ms)


def test_nothing_of_it_is_left_when_it_is_written():
    book = begun()
    agent = book.add("agent.start", "a")
    for _ in range(5):
        tool(book, parent=agent)
    book.add("agent.end", "a", parent=agent, status="ok")
    gc.collect()
    gc.disable()
    try:
        assert outline(book)
        left = [found for found in gc.get_objects() if isinstance(found, outline_rows.Row)]
    finally:
        gc.enable()
    assert left == []


def test_the_reference_writers_look():
    book = Book("20260921_161320_c0de")
    book.start(session_id="nightly-7", framework="homegrown", framework_version="2.1", model="model-x",
               task="triage the inbox", at=0)  # fmt: skip
    agent = book.add("agent.start", "router", at=0.1)
    call = book.add("llm.prompt", "router", {"tokens_in": 12_000}, parent=agent, at=0.2)
    book.add(
        "llm.response", "router", {"tokens_out": 400, "cost_usd": 0.0031}, parent=call, at=2.6, dur_ms=2400
    )
    step = book.add("tool.call", "fetch_mail", parent=agent, at=2.8)
    text = {"text_ref": "blobs/c93094df.txt", "preview": "mail 0", "bytes": 40_243}
    book.add("tool.result", "fetch_mail", text, parent=step, at=4, status="ok", dur_ms=1200)
    step = book.add("tool.call", "send", parent=agent, at=4)
    failed = {"error_type": "TimeoutError", "error": "exceeded 30s"}
    book.add("tool.error", "send", failed, parent=step, at=34, status="error", dur_ms=30_000)
    book.add("agent.end", "router", {"cost_usd": 0.0031}, parent=agent, at=34.3, status="ok", dur_ms=34_200)
    book.end("failed", at=34.4)
    assert outline(book) == (
        "# run 20260921_161320_c0de · failed · 34.4s active · $0.0031 · 1 llm · 2 tool · 1 errors\n"
        "session nightly-7 · homegrown@2.1 · model-x · 1 attempts · 34.4s wall\n"
        "\n"
        "task: triage the inbox\n"
        "\n"
        "---- attempt 1 · 14:22:33 → 14:23:07 · failed ----\n"
        "#0002 ▶ router                     34.2s  $0.0031  ok · 1 llm · 12.4k tok\n"
        "#0005   → fetch_mail                1.2s           ok                       ← #0006\n"
        "#0007   → send                     30.0s           ✗ TimeoutError           ← #0008\n"
        "\n"
        "failures:  #0008\n"
        "slowest:   #0002 router 34.2s · #0007 send 30.0s · #0003 router 2.4s\n"
        "costliest: #0004 router $0.0031\n"
        "biggest:   #0006 fetch_mail 39.3 KB -> blobs/c93094df.txt\n"
    )


def test_attempts_and_what_was_open():
    lines = outline(seed_book()).split("\n")
    assert [line for line in lines if line.startswith("----")] == [
        "---- attempt 1 · 14:22:33 → 14:23:16 · crashed (no run.end) ----",
        "---- attempt 2 · 14:31:02 → 14:31:35 · failed ----",
    ]
    assert "#0021   → run_python                   -           open" in lines
    assert any(line.startswith("#0022 ✗ process exited: killed by SIGKILL") for line in lines)


def test_parallel_calls_of_one_tool_pair_rightly():
    book = begun()
    one, two = book.add("tool.call", "t"), book.add("tool.call", "t")
    book.add("tool.result", "t", parent=two, status="ok", dur_ms=10)
    book.add("tool.error", "t", {"error_type": "E"}, parent=one, status="error", dur_ms=90)
    assert [re.sub(r" +", " ", row) for row in rows(book)] == [
        "#0002 → t 0.1s ✗ E ← #0005",
        "#0003 → t 0.0s ok ← #0004",
    ]


def test_nesting_follows_the_tree_not_the_order_of_arrival():
    book = begun()
    one, two = book.add("agent.start", "one"), book.add("agent.start", "two")
    book.add("tool.call", "b", parent=two)
    outer = book.add("tool.call", "a", parent=one)
    book.add("agent.start", "deep", parent=outer)
    assert [row[:16].rstrip() for row in rows(book)] == [
        "#0002 ▶ one", "#0005   → a", "#0006     ▶ deep", "#0003 ▶ two", "#0004   → b",
    ]  # fmt: skip


def test_runs_of_equal_steps_are_folded():
    book = begun()
    agent = book.add("agent.start", "a")
    for _ in range(17):
        last = tool(book, "read_file", agent)
    tool(book, "write_file", agent)
    folded, alone = rows(book)[1:]
    assert folded.startswith("#0003   → read_file ×17")
    assert "8.5s" in folded
    assert folded.endswith(f"← #{last[1]:04d}")
    assert "write_file" in alone


def test_up_to_three_equal_steps_stay_apart():
    book = begun()
    for _ in range(3):
        tool(book)
    assert len(rows(book)) == 3


def test_parallel_equal_steps_fold_too():
    book = begun()
    calls = [book.add("tool.call", "t") for _ in range(6)]
    for call in reversed(calls):
        book.add("tool.result", "t", parent=call, status="ok", dur_ms=1)
    assert len(rows(book)) == 1
    assert "×6" in rows(book)[0]


def test_a_failure_breaks_a_run_of_equal_steps():
    book = begun()
    for number in range(11):
        tool(book, error="E" if number == 5 else None)
    assert [re.sub(r".*→ t *(×\d)?.*(ok|✗ E).*", r"\1 \2", row) for row in rows(book)] == [
        "×5 ok",
        " ✗ E",
        "×5 ok",
    ]


def test_failed_model_calls_and_errors_have_rows():
    book = begun()
    agent = book.add("agent.start", "a")
    call = book.add("llm.prompt", "m", parent=agent)
    book.add("llm.error", "m", {"error_type": "RateLimitError", "error": "429"}, parent=call, status="error")
    book.add("error", "x", {"error_type": "KeyError", "error": "'a'"}, parent=agent)
    book.add("state.update", None, {"error_type": "Odd"})
    assert [re.sub(" +", " ", row) for row in rows(book)] == [
        "#0002 ▶ a - running · 1 llm · 0 tok",
        "#0004 ✗ RateLimitError: 429 ← #0004",
        "#0005 ✗ KeyError: 'a' ← #0005",
        "#0006 ✗ Odd: ← #0006",
    ]
    assert "failures:  #0004 #0005 #0006" in outline(book)


def test_model_calls_outside_any_agent_have_rows():
    book = begun()
    for _ in range(5):
        call = book.add("llm.prompt", "m", {"tokens_in": 500})
        book.add("llm.response", "m", {"tokens_out": 1}, parent=call, status="ok", dur_ms=10)
    assert "○ m ×5" in rows(book)[0]
    assert "5 llm · 2.5k tok" in rows(book)[0]


def test_a_model_call_left_open_has_a_row_in_its_place():
    book = begun()
    agent = book.add("agent.start", "a")
    book.add("llm.prompt", "m", parent=agent)
    tool(book, parent=agent)
    book.die()
    assert [row[:12].rstrip() for row in rows(book)][:3] == ["#0002 ▶ a", "#0003   ○ m", "#0004   → t"]


def test_an_end_without_a_beginning_is_shown_as_it_is():
    book = begun()
    book.add("tool.result", "t", status="ok", dur_ms=10)
    book.add("llm.response", "m", status="ok")
    assert [row[:9] for row in rows(book)] == ["#0002 → t", "#0003 ○ m"]


def test_two_thousand_rows_at_most_and_a_line_about_the_rest():
    book = begun()
    agent = book.add("agent.start", "a")
    for number in range(3000):
        tool(book, f"t{number}", agent)
    last = tool(book, "last", agent)
    got = rows(book)
    assert len(got) == outline_rows.ROWS_MAX
    assert got[-1].endswith(f"← #{last[1]:04d}")
    assert "t998 " in got[999]
    text = outline(book)
    assert "… 1002 rows folded between #" in text
    assert ": 1002 tool calls (agent.logs has every event)" in text


def test_rows_that_are_all_open_are_bounded_too(monkeypatch):
    monkeypatch.setattr(outline_rows, "ROWS_MAX", 10)
    book = begun()
    for number in range(15):
        book.add("tool.call", f"t{number}")
    assert len(rows(book)) == 10
    assert "… 5 rows folded between #0012 and #0016: 5 tool calls" in outline(book)


def test_any_number_of_attempts_is_bounded(monkeypatch):
    monkeypatch.setattr(outline_text, "_ATTEMPTS_MAX", 4)
    book = begun()
    for _ in range(9):
        book.die()
        book.resume()
    text = outline(book)
    assert [int(n) for n in re.findall(r"^---- attempt (\d+)", text, re.MULTILINE)] == [1, 2, 9, 10]
    assert "… 6 attempts folded (meta.json lists them)" in text


def test_many_failures_are_counted():
    book = begun()
    for _ in range(60):
        book.add("error", None, {"error_type": "E", "error": "x"})
    assert outline(book).count("#0002") == 2
    assert "… +10" in outline(book)


LIVE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "![x](http://a/b.png)", "[x](javascript:alert(1))",
    "```", "~~~", "\n# heading", "<!--", "&lt;b&gt;", "\\[x](http://a)", "`", "| a | b |", "\x1b[2J", "\u202e",
]  # fmt: skip
FOREIGN = st.lists(st.one_of(st.sampled_from(LIVE), st.text(max_size=5)), max_size=4).map("".join).map(
    lambda text: text.encode("utf-8", "replace").decode()
)  # fmt: skip


def assert_dead(text):
    assert "<" not in text
    assert re.search(r"(?<!\\)(?:\\\\)*[`\[]", text) is None
    assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]", text) is None


@pytest.mark.parametrize("live", LIVE)
def test_nothing_is_live(live):
    assert_dead(markdown(live, 100))
    assert "\n" not in markdown(live, 100)


@given(FOREIGN, FOREIGN, FOREIGN)
def test_no_payload_makes_anything_live(one, two, three):
    book = Book()
    book.start(session_id=one, framework=two, framework_version=one, model=three, task=one)
    agent = book.add("agent.start", two)
    call = book.add("llm.prompt", three, parent=agent)
    book.add("llm.error", three, {"error_type": one, "error": two}, parent=call, status=three, dur_ms=3)
    call = book.add("tool.call", one, parent=agent)
    book.add("tool.error", two, {"error_type": three, "cost_usd": 0.1}, parent=call, dur_ms=4)
    book.add("tool.result", two, {"text_ref": f"blobs/{one}", "preview": "", "bytes": 1}, status=three)
    book.add("error", one, {"error_type": two, "error": three})
    book.die(one)
    assert_dead(outline(book))


@given(st.text(max_size=40))
def test_plain_words_are_left_as_they_are(text):
    if re.fullmatch(r"[\w ./:(),_*-]*", text) and text.isprintable():
        assert markdown(text, 100) == text
